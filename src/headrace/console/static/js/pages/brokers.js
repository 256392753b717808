// Brokers, elections, and reassignments with their progress.
import { html, useState } from "../lib/ui.js";
import { base, post, useData } from "../lib/api.js";
import { link, navigate } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Field, Loaded, Meter, PageHead, TabPanel, Tabs } from "../components/basics.js";
import { DialogForm, confirmName, run, showDialog, toast } from "../components/dialogs.js";
import { Table } from "../components/table.js";
import { Configs, denied } from "./common.js";

const TABS = [{ id: "list", title: "Brokers" }, { id: "reassignments", title: "Reassignments" }, { id: "defaults", title: "Cluster-wide configs" }];

export function BrokerList({ cluster, writable }) {
  const brokers = useData(base(cluster, "brokers"), { per_page: 500 });
  const [tab, setTab] = useState("list");
  const elect = (type) => () => showDialog(type === "preferred" ? "Elect preferred leaders" : "Elect unclean leaders", (close) => html`<${Elect} cluster=${cluster} type=${type} close=${close} done=${brokers.reload} />`);
  return html`<${PageHead} title="Brokers">
      <${Button} denied=${denied(writable)} onClick=${elect("preferred")}>Elect preferred leaders<//>
      <${Button} tone="danger" denied=${denied(writable)} onClick=${elect("unclean")}>Unclean election<//><//>
    <${Tabs} label="Brokers" tabs=${TABS} chosen=${tab} onChoose=${setTab} />
    <${TabPanel} id=${tab}>
      ${tab === "list" && html`<${Loaded} from=${brokers}>${(data) => html`<${Card} flush><${Table} label="Brokers" columns=${columnsOf(cluster)} rows=${data.items} keyOf=${(row) => row.id} initial=${{ by: "id", order: "asc" }} empty="No brokers are known" /><//>`}<//>`}
      ${tab === "reassignments" && html`<${Reassignments} cluster=${cluster} writable=${writable} />`}
      ${tab === "defaults" && html`<${Configs} path=${base(cluster, "brokers", "default", "configs")} writable=${writable} what="all brokers" />`}<//>`;
}

const columnsOf = (cluster) => [
  { id: "id", title: "Broker", sort: true, cell: (row) => html`<a href=${link(cluster, "brokers", String(row.id))}>${row.id}</a>${row.is_controller && html` <${Badge} tone="accent">controller<//>`}` },
  { id: "state", title: "State", cell: (row) => row.reachable ? html`<${Badge} tone="good">up<//>` : html`<${Badge} tone="bad" title=${row.error}>down<//>` },
  { id: "host", title: "Address", low: true, cell: (row) => row.host === null ? "–" : `${row.host}:${row.port}` },
  { id: "rack", title: "Rack", low: true, cell: (row) => row.rack ?? "–" },
  { id: "leaders", title: "Leaders", number: true, sort: true, cell: (row) => format.number(row.leaders) },
  { id: "replicas", title: "Replicas", number: true, sort: true, low: true, cell: (row) => format.number(row.replicas) },
  { id: "bytes_in_per_second", title: "In", number: true, sort: true, low: true, cell: (row) => format.byteRate(row.bytes_in_per_second) },
  { id: "bytes_out_per_second", title: "Out", number: true, sort: true, low: true, cell: (row) => format.byteRate(row.bytes_out_per_second) },
  { id: "connections", title: "Connections", number: true, sort: true, low: true, cell: (row) => format.number(row.connections) },
  { id: "size_bytes", title: "Logs", number: true, sort: true, cell: (row) => format.bytes(row.size_bytes) },
  { id: "disk", title: "Disk used", number: true, cell: (row) => html`<${Disk} row=${row} />` },
];

export function Disk({ row }) {
  if (!row.total_bytes || row.usable_bytes === null) return "–";
  const used = 1 - row.usable_bytes / row.total_bytes;
  return html`<span title=${`${format.bytes(row.usable_bytes)} free of ${format.bytes(row.total_bytes)}`}><${Meter} value=${used} tone=${used > 0.9 ? "bad" : used > 0.8 ? "warn" : undefined} />${format.percent(used)}</span>`;
}

function Elect({ cluster, type, close, done }) {
  const [result, setResult] = useState(null);
  const [topic, setTopic] = useState("");
  const [partition, setPartition] = useState("");
  const [sure, setSure] = useState("");
  const submit = async () => {
    if (result) return true;
    const partitions = type === "unclean" || topic ? [{ topic: topic.trim(), partition: Number(partition) }] : null;
    setResult(await post(base(cluster, "elections"), { type, partitions }));
    done();
    return false;
  };
  return html`<${DialogForm} close=${close} submit=${submit} label=${result ? "Close" : "Elect"} tone=${type === "unclean" ? "danger" : undefined} disabled=${!result && type === "unclean" && sure !== topic}>
    ${type === "unclean" ? html`<div class="callout" data-tone="bad">A replica that is not in sync becomes leader. Records that only other replicas have are lost.</div>` : html`<p class="muted">The first replica of each partition becomes leader, if it is in sync. Leave the topic empty for all partitions.</p>`}
    <div class="form"><div class="pair"><${Field} label="Topic" name="topic" value=${topic} onValue=${setTopic} required=${type === "unclean"} autofocus spellcheck="false" autocomplete="off" />
      <${Field} label="Partition" name="partition" type="number" min="0" value=${partition} onValue=${setPartition} required=${type === "unclean" || !!topic} /></div></div>
    ${type === "unclean" && html`<${Field} label="Type the topic's name to confirm" name="confirm" value=${sure} onValue=${setSure} spellcheck="false" autocomplete="off" />`}
    ${result && html`<div class="callout" data-tone=${result.errors.length ? "warn" : "good"}>${format.plural(result.elected.length, "leader")} elected, ${format.number(result.not_needed)} already right.${result.errors.map((each) => html`<div key=${each.topic + each.partition}>${each.topic}-${each.partition}: ${each.message}</div>`)}</div>`}<//>`;
}

function Reassignments({ cluster, writable }) {
  const path = base(cluster, "reassignments");
  const list = useData(path);
  const cancel = (row) => confirmName({ title: "Cancel a reassignment", text: "The new replicas will be removed; the old ones stay.", name: `${row.topic}-${row.partition}`, label: "Cancel it", done: "Cancelled the reassignment", action: async () => { await start(path, [{ topic: row.topic, partition: row.partition, replicas: null }]); list.reload(); } });
  const columns = [
    { id: "topic", title: "Partition", sort: true, cell: (row) => html`<a href=${link(cluster, "topics", row.topic)}>${row.topic}-${row.partition}</a>` },
    { id: "progress", title: "Progress", number: true, cell: (row) => html`<${Meter} value=${row.progress ?? 0} />${format.percent(row.progress)}` },
    { id: "copied", title: "Copied", low: true, number: true, cell: (row) => `${format.bytes(row.copied_bytes)} of ${format.bytes(row.total_bytes)}` },
    { id: "left", title: "Left", number: true, cell: (row) => format.duration(row.remaining_seconds) },
    { id: "adding", title: "Adds", low: true, cell: (row) => row.adding.join(", ") || "–" },
    { id: "removing", title: "Removes", low: true, cell: (row) => row.removing.join(", ") || "–" },
    { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => html`<${Button} small tone="danger" denied=${denied(writable)} onClick=${() => cancel(row)}>Cancel<//>` },
  ];
  return html`<${Loaded} from=${list}>${(data) => html`<${Card} flush title="Partitions that move" actions=${html`<${Button} small glyph="plus" denied=${denied(writable)} onClick=${() => showDialog("Move a partition", (close) => html`<${Move} path=${path} close=${close} done=${list.reload} />`)}>Move a partition<//>`}>
    <${Table} label="Reassignments" columns=${columns} rows=${data.items} keyOf=${(row) => row.topic + row.partition} empty="No partition moves" /><//>`}<//>`;
}

/** Starts or cancels; an error of a partition is an error of the action. */
async function start(path, partitions) {
  const done = await post(path, { partitions });
  if (done.errors.length) throw new Error(done.errors.map((each) => `${each.topic}-${each.partition}: ${each.message}`).join("; "));
  return done;
}

function Move({ path, close, done }) {
  const [topic, setTopic] = useState("");
  const [partition, setPartition] = useState("0");
  const [replicas, setReplicas] = useState("");
  const submit = async () => {
    await start(path, [{ topic: topic.trim(), partition: Number(partition), replicas: replicas.split(/[\s,]+/).filter(Boolean).map(Number) }]);
    toast(`${topic.trim()}-${partition} moves to ${replicas}`);
    done();
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Move"><div class="form"><div class="pair">
    <${Field} label="Topic" name="topic" value=${topic} onValue=${setTopic} required autofocus spellcheck="false" autocomplete="off" />
    <${Field} label="Partition" name="partition" type="number" min="0" value=${partition} onValue=${setPartition} required /></div></div>
    <${Field} label="Replicas" name="replicas" value=${replicas} onValue=${setReplicas} required placeholder="1, 2, 3" hint="Broker ids; the first one is the preferred leader" /><//>`;
}
