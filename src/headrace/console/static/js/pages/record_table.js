// Records as a table whose rows open to the whole record: key, value, headers, transaction, producer.
import { html, useState } from "../lib/ui.js";
import * as format from "../lib/format.js";
import { Badge, Button } from "../components/basics.js";
import { toast } from "../components/dialogs.js";

const idOf = (record) => record.partition + ":" + record.offset;

export function RecordTable({ records, chosen, onChoose }) {
  const [open, setOpen] = useState(new Set());
  const turn = (set, id) => { const next = new Set(set); if (!next.delete(id)) next.add(id); return next; };
  const all = records.length > 0 && records.every((record) => record.control || chosen.has(idOf(record)));
  return html`<div class="table-wrap records"><table class="grid" aria-label="Records"><thead><tr>
      <th class="tight" scope="col"><input type="checkbox" aria-label="Select all records" checked=${all} onChange=${() => onChoose(all ? new Set() : new Set(records.filter((each) => !each.control).map(idOf)))} /></th>
      <th scope="col" class="tight"><span class="sr">Details</span></th><th scope="col" class="number"><span class="low">Partition</span><span class="only-phone">P</span></th><th scope="col" class="number">Offset</th><th scope="col" class="low">Time</th><th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="number low">Size</th></tr></thead>
    <tbody>${records.map((record) => {
      const id = idOf(record), shown = open.has(id);
      return html`<tr key=${id} class=${[chosen.has(id) && "chosen", record.control && "control"].filter(Boolean).join(" ")}>
        <td class="tight">${!record.control && html`<input type="checkbox" aria-label=${`Select record ${id}`} checked=${chosen.has(id)} onChange=${() => onChoose(turn(chosen, id))} />`}</td>
        <td class="tight"><${Button} small plain glyph=${shown ? "chevron" : "right"} title=${`Details of record ${id}`} aria-expanded=${shown ? "true" : "false"} onClick=${() => setOpen(turn(open, id))} /></td>
        <td class="number">${record.partition}</td><td class="number">${format.number(record.offset)}</td><td class="low muted">${format.time(record.timestamp_ms)}</td>
        <td class="key"><${Short} field=${record.key} none="null" record=${record} /></td><td class="value"><${Short} field=${record.value} none="tombstone" record=${record} /></td><td class="number low muted">${format.bytes(record.size_bytes)}</td></tr>
        ${shown && html`<tr key=${id + "d"} class="detail"><td colspan="8"><${Details} record=${record} /></td></tr>`}`;
    })}</tbody></table></div>`;
}

function Short({ field, none, record }) {
  if (record.control) return none === "tombstone" ? html`<${Badge} tone=${record.control === "commit" ? "good" : "bad"}>${record.control} marker<//>` : "";
  if (field === null) return html`<${Badge} title=${none === "tombstone" ? "Null value: compaction deletes the key" : "No key"}>${none}<//>`;
  const state = none === "tombstone" && record.transaction && record.transaction.state !== "committed" ? html`<${Badge} tone=${record.transaction.state === "aborted" ? "bad" : "violet"}>${record.transaction.state}<//> ` : "";
  return html`${state}<span class="mono" title=${field.error ?? field.decoder}>${field.error ? html`<span class="bad">${field.text || field.error}</span>` : field.text.slice(0, 400)}</span>`;
}

function Details({ record }) {
  const facts = [
    ["Partition", record.partition], ["Offset", record.offset], ["Timestamp", `${format.time(record.timestamp_ms)} (${record.timestamp_type === "append" ? "log append time" : "create time"})`],
    ["Size", format.bytes(record.size_bytes)], ["Compression", record.compression ?? "none"],
    ...(record.transaction ? [["Transaction", record.transaction.state]] : []),
    ...(record.producer_id !== null && record.producer_id >= 0 ? [["Producer", `${record.producer_id}, epoch ${record.producer_epoch}`], ["Sequence", record.sequence]] : []),
  ];
  return html`<div class="record-detail"><dl class="facts">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${!record.control && html`<${Whole} title="Key" field=${record.key} none="null" /><${Whole} title="Value" field=${record.value} none="null: a tombstone" />
    ${record.headers.length > 0 && html`<section><h3>Headers</h3><table class="plain-table"><tbody>${record.headers.map((header, index) => html`<tr key=${index}><th scope="row" class="mono">${header.name}</th><td class="mono break">${header.value === null ? html`<i class="muted">null</i>` : header.value.text}</td></tr>`)}</tbody></table></section>`}`}</div>`;
}

function Whole({ title, field, none }) {
  if (field === null) return html`<section><h3>${title}</h3><p class="muted">${none}</p></section>`;
  const text = field.json !== undefined && field.json !== null ? JSON.stringify(field.json, null, 2) : field.text;
  const copy = () => navigator.clipboard.writeText(text).then(() => toast("Copied"), () => toast("The browser does not allow to copy", "bad"));
  return html`<section><h3>${title} <${Badge}>${field.decoder}<//> <span class="muted small">${format.bytes(field.size_bytes)}${field.truncated ? ", cut" : ""}</span> <${Button} small plain glyph="copy" title=${`Copy ${title.toLowerCase()}`} onClick=${copy} /></h3>
    ${field.error && html`<p class="bad small">${field.error}</p>`}<pre class="code" tabindex="0" aria-label=${title}>${text}</pre></section>`;
}
