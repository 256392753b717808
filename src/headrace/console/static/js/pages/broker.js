// One broker: log directories, requests with latencies, traffic, configs.
import { html, useState } from "../lib/ui.js";
import { base, useData } from "../lib/api.js";
import { link, navigate } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Card, Loaded, PageHead, Stat, TabPanel, Tabs } from "../components/basics.js";
import { HistoryCard, Ranges } from "../components/chart.js";
import { Table } from "../components/table.js";
import { Disk } from "./brokers.js";
import { Configs } from "./common.js";

const TABS = [{ id: "activity", title: "Activity" }, { id: "disks", title: "Log directories" }, { id: "configs", title: "Configs" }];

export function Broker({ cluster, writable, item: id, tab = "activity" }) {
  const path = base(cluster, "brokers", id);
  const broker = useData(path);
  return html`<${PageHead} title=${`Broker ${id}`} crumb=${{ title: "Brokers", href: link(cluster, "brokers") }}>
      ${broker.data && (broker.data.reachable ? html`<${Badge} tone="good">up<//>` : html`<${Badge} tone="bad">down<//>`)}${broker.data?.is_controller && html`<${Badge} tone="accent">controller<//>`}<//>
    <${Loaded} from=${broker}>${(data) => html`<div class="stack">
      ${data.error && html`<div class="callout" data-tone="bad">${data.error}</div>`}
      <div class="stats">
        <${Stat} name="Address" value=${data.host ?? "–"} note=${data.port ? `port ${data.port}${data.rack ? `, rack ${data.rack}` : ""}` : ""} />
        <${Stat} name="Leaders" value=${format.number(data.leaders)} note=${`of ${format.plural(data.replicas, "replica")}`} />
        <${Stat} name="Bytes in" value=${format.byteRate(data.bytes_in_per_second)} note=${format.rate(data.messages_in_per_second) + " messages"} />
        <${Stat} name="Bytes out" value=${format.byteRate(data.bytes_out_per_second)} note="to consumers" />
        <${Stat} name="Connections" value=${format.number(data.connections)} note=${data.version ?? ""} />
        <${Stat} name="Logs" value=${format.bytes(data.size_bytes)} note=${format.isKnown(data.usable_bytes) ? `${format.bytes(data.usable_bytes)} free` : ""} />
      </div>
      <div><${Tabs} label="Broker" tabs=${TABS} chosen=${tab} onChoose=${(next) => navigate(link(cluster, "brokers", id, ...(next === "activity" ? [] : [next])), { replace: true })} />
      <${TabPanel} id=${tab}>
        ${tab === "activity" && html`<${Activity} cluster=${cluster} id=${id} data=${data} />`}
        ${tab === "disks" && html`<${Disks} cluster=${cluster} data=${data} />`}
        ${tab === "configs" && html`<${Configs} path=${path + "/configs"} writable=${writable} what=${`broker ${id}`} />`}<//></div></div>`}<//>`;
}

const latency = (ms) => (format.isKnown(ms) ? (ms < 10 ? ms.toFixed(2) : ms.toFixed(0)) + " ms" : "–");

function Activity({ cluster, id, data }) {
  const [minutes, setMinutes] = useState(60);
  const columns = [
    { id: "api", title: "API", sort: true, cell: (row) => html`<b>${row.api}</b>` },
    { id: "per_second", title: "Requests", number: true, sort: true, cell: (row) => format.rate(row.per_second) },
    { id: "errors_per_second", title: "Errors", number: true, sort: true, low: true, cell: (row) => row.errors_per_second ? html`<span class="bad">${format.rate(row.errors_per_second)}</span>` : format.rate(row.errors_per_second) },
    { id: "p50_ms", title: "p50", number: true, sort: true, cell: (row) => latency(row.p50_ms) },
    { id: "p95_ms", title: "p95", number: true, sort: true, low: true, cell: (row) => latency(row.p95_ms) },
    { id: "p99_ms", title: "p99", number: true, sort: true, cell: (row) => latency(row.p99_ms) },
  ];
  return html`<div class="stack"><div><${Ranges} minutes=${minutes} onChoose=${setMinutes} /></div>
    <${HistoryCard} cluster=${cluster} title="Traffic" minutes=${minutes} lines=${{ [`broker.bytes_in:${id}`]: "bytes in", [`broker.bytes_out:${id}`]: "bytes out" }} />
    <${Card} title="Requests" flush>${data.requests === null ? html`<div class="empty"><strong>${data.metrics_error ?? "No metrics of this broker"}</strong>Start it with --metrics and give its address to the console to see requests by API.</div>`
      : html`<${Table} label="Requests by API" columns=${columns} rows=${data.requests} keyOf=${(row) => row.api} initial=${{ by: "per_second", order: "desc" }} empty="No requests yet" />`}<//></div>`;
}

function Disks({ cluster, data }) {
  const columns = [
    { id: "topic", title: "Largest partitions", cell: (row) => html`<a href=${link(cluster, "topics", row.topic)}>${row.topic}-${row.partition}</a>` },
    { id: "size_bytes", title: "Size", number: true, cell: (row) => format.bytes(row.size_bytes) },
  ];
  if (!data.log_dirs.length) return html`<div class="card"><div class="empty">The broker tells nothing about its log directories.</div></div>`;
  return html`<div class="columns">${data.log_dirs.map((dir) => html`<${Card} key=${dir.path} flush title=${html`<span class="mono break">${dir.path}</span>`} actions=${html`${dir.cordoned && html`<${Badge} tone="warn">cordoned<//>`}${dir.error ? html`<${Badge} tone="bad">offline<//>` : html`<${Disk} row=${dir} />`}`}>
    ${dir.error && html`<div class="callout" data-tone="bad">${dir.error}</div>`}
    <div class="body row muted">${format.plural(dir.replicas, "replica")}, ${format.bytes(dir.size_bytes)}${format.isKnown(dir.usable_bytes) && html`, ${format.bytes(dir.usable_bytes)} free of ${format.bytes(dir.total_bytes)}`}</div>
    <${Table} label=${`Largest partitions in ${dir.path}`} columns=${columns} rows=${dir.largest} keyOf=${(row) => row.topic + row.partition} empty="No partitions" /><//>`)}</div>`;
}
