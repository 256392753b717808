// One topic: partitions, records, configs, groups, producers.
import { html, useState } from "../lib/ui.js";
import { base, post, remove, useData } from "../lib/api.js";
import { link, navigate } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Field, Loaded, PageHead, Stat, TabPanel, Tabs } from "../components/basics.js";
import { DialogForm, confirmName, showDialog, toast } from "../components/dialogs.js";
import { HistoryCard, Ranges } from "../components/chart.js";
import { Table } from "../components/table.js";
import { Configs, denied } from "./common.js";
import { Records } from "./records.js";
import { produceRecord } from "./produce.js";
import { ProducerTable } from "./transactions.js";

const TABS = [{ id: "partitions", title: "Partitions" }, { id: "records", title: "Records" }, { id: "configs", title: "Configs" }, { id: "groups", title: "Groups" }, { id: "producers", title: "Producers" }, { id: "history", title: "History" }];

export function Topic({ cluster, writable, item: name, tab = "partitions" }) {
  const path = base(cluster, "topics", name);
  const topic = useData(path);
  const may = (operation) => denied(writable) ?? (topic.data?.operations && !topic.data.operations.includes(operation) ? `You have no right ${operation} on topic ${name}` : undefined);
  const choose = (id) => navigate(link(cluster, "topics", name, ...(id === "partitions" ? [] : [id])), { replace: true });
  const gone = async () => { await remove(path); navigate(link(cluster, "topics")); };
  return html`<${PageHead} title=${name} crumb=${{ title: "Topics", href: link(cluster, "topics") }}>
      <${Button} glyph="send" denied=${may("WRITE")} onClick=${() => produceRecord(cluster, name)}>Produce<//>
      <${Button} glyph="plus" denied=${may("ALTER")} onClick=${() => showDialog(`Add partitions to ${name}`, (close) => html`<${Extend} path=${path} topic=${topic.data} close=${close} done=${topic.reload} />`)}>Partitions<//>
      <${Button} denied=${may("DELETE")} onClick=${() => confirmName({ title: `Purge ${name}`, text: "All records of the topic that exist now will be deleted. Consumers continue after them.", name, label: "Purge", done: `Purged ${name}`, action: async () => { await post(path + "/purge", { partitions: null }); topic.reload(); } })}>Purge<//>
      <${Button} tone="danger" glyph="trash" denied=${may("DELETE")} onClick=${() => confirmName({ title: `Delete ${name}`, text: "The topic and all its records will be deleted.", name, label: "Delete", done: `Deleted ${name}`, action: gone })}>Delete<//><//>
    <${Loaded} from=${topic}>${(data) => html`<div class="stack">
      <div class="stats">
        <${Stat} name="Partitions" value=${format.number(data.partitions)} note=${`replication factor ${data.replication_factor}`} />
        <${Stat} name="Records" value=${format.compact(data.records)} note="between start and end offset" />
        <${Stat} name="Rate" value=${format.rate(data.messages_in_per_second)} note="messages in" />
        <${Stat} name="Size" value=${format.bytes(data.size_bytes)} note="all replicas" />
        <${Stat} name="Under-replicated" value=${format.number(data.under_replicated)} tone=${data.offline || data.under_replicated ? "bad" : "good"} note=${data.offline ? `${data.offline} offline` : "of its partitions"} />
        <${Stat} name="Groups" value=${format.number(data.consuming.length)} note=${worst(data.consuming)} />
      </div>
      <div><${Tabs} label="Topic" tabs=${TABS} chosen=${tab} onChoose=${choose} />
      <${TabPanel} id=${tab}>
        ${tab === "partitions" && html`<${Partitions} data=${data} cluster=${cluster} />`}
        ${tab === "records" && html`<${Records} cluster=${cluster} topic=${name} writable=${writable} partitions=${data.partitions} />`}
        ${tab === "configs" && html`<${Configs} path=${path + "/configs"} writable=${writable} what=${name} />`}
        ${tab === "groups" && html`<${Consuming} cluster=${cluster} rows=${data.consuming} />`}
        ${tab === "producers" && html`<${ProducerTable} cluster=${cluster} topic=${name} writable=${writable} />`}
        ${tab === "history" && html`<${History} cluster=${cluster} name=${name} />`}
      <//></div></div>`}<//>`;
}

const worst = (groups) => (groups.length ? `most lag ${format.compact(Math.max(...groups.map((each) => each.lag ?? 0)))}` : "nobody consumes it");

function Partitions({ data, cluster }) {
  const broker = (id) => html`<a href=${link(cluster, "brokers", String(id))}>${id}</a>`;
  const columns = [
    { id: "partition", title: "Partition", number: true, sort: true, cell: (row) => row.partition },
    { id: "leader", title: "Leader", sort: true, cell: (row) => row.leader === null || row.leader < 0 ? html`<${Badge} tone="bad">none<//>` : html`${broker(row.leader)}${row.replicas[0] !== row.leader ? html` <span class="muted small" title="The preferred leader is the first replica">not preferred</span>` : ""}` },
    { id: "replicas", title: "Replicas", cell: (row) => row.replicas.map((id) => html`<${Badge} key=${id} tone=${row.offline.includes(id) ? "bad" : row.isr.includes(id) ? "good" : "warn"} title=${row.offline.includes(id) ? "offline" : row.isr.includes(id) ? "in sync" : "not in sync"}>${id}<//> `) },
    { id: "isr", title: "ISR", low: true, cell: (row) => html`${row.isr.length} of ${row.replicas.length}${row.reassigning && html` <${Badge} tone="accent">moving<//>`}` },
    { id: "messages_in_per_second", title: "Rate", number: true, sort: true, low: true, cell: (row) => format.rate(row.messages_in_per_second) },
    { id: "size_bytes", title: "Size", number: true, sort: true, cell: (row) => format.bytes(row.size_bytes) },
    { id: "start_offset", title: "Start offset", number: true, sort: true, low: true, cell: (row) => format.number(row.start_offset) },
    { id: "end_offset", title: "End offset", number: true, sort: true, cell: (row) => format.number(row.end_offset) },
    { id: "leader_epoch", title: "Epoch", number: true, low: true, cell: (row) => format.number(row.leader_epoch) },
  ];
  return html`<${Card} flush><${Table} label="Partitions" columns=${columns} rows=${data.partition_list} keyOf=${(row) => row.partition} initial=${{ by: "partition", order: "asc" }} /><//>`;
}

function Consuming({ cluster, rows }) {
  const columns = [
    { id: "group", title: "Group", sort: true, cell: (row) => html`<a href=${link(cluster, "groups", row.group)}>${row.group}</a>` },
    { id: "state", title: "State", cell: (row) => html`<${Badge} tone=${row.state === "Stable" ? "good" : undefined}>${row.state}<//>` },
    { id: "members", title: "Members", number: true, sort: true, cell: (row) => format.number(row.members) },
    { id: "lag", title: "Lag", number: true, sort: true, cell: (row) => format.number(row.lag) },
    { id: "lag_seconds", title: "Lag in time", number: true, sort: true, cell: (row) => format.duration(row.lag_seconds) },
  ];
  return html`<${Card} flush><${Table} label="Consuming groups" columns=${columns} rows=${rows} keyOf=${(row) => row.group} empty="No group consumes this topic" /><//>`;
}

function History({ cluster, name }) {
  const [minutes, setMinutes] = useState(60);
  return html`<div class="stack"><div><${Ranges} minutes=${minutes} onChoose=${setMinutes} /></div><div class="columns">
    <${HistoryCard} cluster=${cluster} title="Messages in" minutes=${minutes} lines=${{ [`topic.messages_in:${name}`]: "messages" }} />
    <${HistoryCard} cluster=${cluster} title="Size" minutes=${minutes} lines=${{ [`topic.size_bytes:${name}`]: "size" }} /></div></div>`;
}

function Extend({ path, topic, close, done }) {
  const [total, setTotal] = useState((topic?.partitions ?? 0) + 1);
  const submit = async () => {
    await post(path + "/partitions", { total: Number(total) });
    toast(`The topic has ${total} partitions`);
    done();
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Add">
    <${Field} label="Partitions in total" name="total" type="number" min=${(topic?.partitions ?? 0) + 1} value=${total} onValue=${setTotal} required autofocus />
    <div class="callout" data-tone="warn">Keys may move to other partitions, and the number of partitions cannot be reduced.</div><//>`;
}
