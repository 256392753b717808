// The dialog that copies or replays records into a topic.
import { html, useState, useStore } from "../lib/ui.js";
import { base, post, session } from "../lib/api.js";
import * as format from "../lib/format.js";
import { Field } from "../components/basics.js";
import { DialogForm, showDialog, toast } from "../components/dialogs.js";

/** selection: {offsets: [...]}, or {query, max_records}. */
export function copyRecords(cluster, topic, selection) {
  showDialog(`Copy records of ${topic}`, (close) => html`<${Copy} cluster=${cluster} topic=${topic} selection=${selection} close=${close} />`);
}

function Copy({ cluster, topic, selection, close }) {
  const clusters = useStore(session, (value) => value.session.clusters);
  const [target, setTarget] = useState("");
  const [where, setWhere] = useState(cluster);
  const [most, setMost] = useState(selection.max_records);
  const [samePartition, setSamePartition] = useState(false);
  const [sameTime, setSameTime] = useState(true);
  const submit = async () => {
    const chosen = selection.offsets ? selection : { ...selection, max_records: Number(most) };
    const done = await post(base(cluster, "topics", topic, "records", "copy"), { target_cluster: where === cluster ? null : where, target_topic: target.trim(), selection: chosen, keep_partition: samePartition, keep_timestamp: sameTime });
    toast(`Copied ${format.plural(done.copied, "record")} to ${target.trim()}`);
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Copy">
    <div class="callout">${selection.offsets ? `${format.plural(selection.offsets.length, "selected record")} will be produced again.` : "All records from the present start that match the filters will be produced again."} Keys, values and headers stay as they are, byte for byte.</div>
    ${clusters.length > 1 && html`<${Field} kind="select" label="Cluster" value=${where} onValue=${setWhere}>${clusters.map((each) => html`<option value=${each.name} key=${each.name}>${each.name}</option>`)}<//>`}
    <${Field} label="Into topic" name="target" value=${target} onValue=${setTarget} required autofocus spellcheck="false" autocomplete="off" />
    ${!selection.offsets && html`<${Field} label="At most" type="number" min="1" value=${most} onValue=${setMost} />`}
    <${Field} type="checkbox" label="Keep the partition" value=${samePartition} onValue=${setSamePartition} />
    <${Field} type="checkbox" label="Keep the timestamp" value=${sameTime} onValue=${setSameTime} /><//>`;
}
