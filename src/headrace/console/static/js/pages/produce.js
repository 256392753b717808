// The dialog that produces one record.
import { html, useState } from "../lib/ui.js";
import { base, post, useData } from "../lib/api.js";
import * as format from "../lib/format.js";
import { Button, Field } from "../components/basics.js";
import { DialogForm, showDialog, toast } from "../components/dialogs.js";

const ENCODINGS = [["text", "Text"], ["json", "JSON"], ["base64", "Base64"], ["hex", "Hex"], ["null", "Null"]];

export function produceRecord(cluster, topic) {
  showDialog(`Produce to ${topic}`, (close) => html`<${Produce} cluster=${cluster} topic=${topic} close=${close} />`, { wide: true });
}

const input = ({ encoding, data }) => (encoding === "null" ? null : { encoding, data });

function Produce({ cluster, topic, close }) {
  const facts = useData(base(cluster, "topics", topic), {}, { follow: false });
  const [key, setKey] = useState({ encoding: "text", data: "" });
  const [value, setValue] = useState({ encoding: "json", data: "" });
  const [partition, setPartition] = useState("");
  const [headers, setHeaders] = useState([]);
  const submit = async () => {
    const done = await post(base(cluster, "topics", topic, "records"), {
      partition: partition === "" ? null : Number(partition), key: key.encoding === "text" && key.data === "" ? null : input(key), value: input(value), timestamp_ms: null,
      headers: headers.filter((each) => each.name).map((each) => ({ name: each.name, value: { encoding: "text", data: each.value } })),
    });
    toast(`Produced to partition ${done.partition}, offset ${format.number(done.offset)}`);
  };
  const setHeader = (index, change) => setHeaders(headers.map((each, i) => (i === index ? { ...each, ...change } : each)));
  return html`<${DialogForm} close=${close} submit=${submit} label="Produce">
    <div class="form"><div class="pair"><${Field} kind="select" label="Partition" value=${partition} onValue=${setPartition}><option value="">By the key</option>${Array.from({ length: facts.data?.partitions ?? 0 }, (_, index) => html`<option value=${index} key=${index}>${index}</option>`)}<//>
      <${Encoding} label="Key is" value=${key} onValue=${setKey} /><${Encoding} label="Value is" value=${value} onValue=${setValue} /></div></div>
    ${key.encoding !== "null" && html`<${Field} label="Key" name="key" value=${key.data} onValue=${(data) => setKey({ ...key, data })} class="mono" spellcheck="false" autocomplete="off" hint="Empty text: no key" />`}
    ${value.encoding === "null" ? html`<div class="callout" data-tone="warn">A null value is a tombstone: compaction deletes the key.</div>`
      : html`<${Field} kind="textarea" rows="7" label="Value" name="value" value=${value.data} onValue=${(data) => setValue({ ...value, data })} spellcheck="false" autofocus />`}
    <div class="form"><h3>Headers</h3>${headers.map((header, index) => html`<div class="row" key=${index}>
        <input aria-label="Name of the header" placeholder="name" value=${header.name} onInput=${(event) => setHeader(index, { name: event.target.value })} /><input class="grow" aria-label="Value of the header" placeholder="value" value=${header.value} onInput=${(event) => setHeader(index, { value: event.target.value })} />
        <${Button} plain glyph="trash" title="Remove the header" onClick=${() => setHeaders(headers.filter((_, i) => i !== index))} /></div>`)}
      <div><${Button} small glyph="plus" onClick=${() => setHeaders([...headers, { name: "", value: "" }])}>Header<//></div></div><//>`;
}

const Encoding = ({ label, value, onValue }) => html`<${Field} kind="select" label=${label} value=${value.encoding} onValue=${(encoding) => onValue({ ...value, encoding })}>${ENCODINGS.map(([id, title]) => html`<option value=${id} key=${id}>${title}</option>`)}<//>`;
