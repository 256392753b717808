// One pipeline: its flow graph, batches, and dead letters with replay.
import { html, useState } from "../lib/ui.js";
import { base, post, useData } from "../lib/api.js";
import { link, navigate } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Empty, Field, Loaded, PageHead, Stat, TabPanel, Tabs } from "../components/basics.js";
import { Chart } from "../components/chart.js";
import { DialogForm, showDialog, toast } from "../components/dialogs.js";
import { FlowGraph } from "../components/flow_graph.js";
import { Table } from "../components/table.js";
import { denied } from "./common.js";
import { PipelineState } from "./pipelines.js";

const TABS = [{ id: "flow", title: "Flow" }, { id: "batches", title: "Batches" }, { id: "dead-letters", title: "Dead letters" }];

export function Pipeline({ cluster, writable, item: name, tab = "flow" }) {
  const path = base(cluster, "pipelines", name);
  const pipeline = useData(path);
  return html`<${PageHead} title=${name} crumb=${{ title: "Pipelines", href: link(cluster, "pipelines") }}>${pipeline.data && html`<${PipelineState} row=${pipeline.data} />`}<//>
    <${Loaded} from=${pipeline}>${(data) => html`<div class="stack">
      ${data.error && html`<div class="callout" data-tone="bad">${data.error}</div>`}
      <div class="stats">
        <${Stat} name="Rows" value=${format.rate(data.rows_per_second)} note=${`${format.compact(data.flows.reduce((sum, flow) => sum + (flow.rows ?? 0), 0))} since the start`} />
        <${Stat} name="Lag" value=${format.number(data.lag)} note="records of the source topics" />
        <${Stat} name="Batch" value=${format.duration(Math.max(0, ...data.flows.map((flow) => flow.batch_seconds ?? 0)))} note="the slowest flow's last" />
        <${Stat} name="Dead letters" value=${format.number(data.dead_letters)} tone=${data.dead_letters ? "warn" : "good"} note="rows refused" />
        <${Stat} name="Host" value=${data.host ?? "–"} note=${`since ${format.time(data.started_ms, false)}`} />
      </div>
      <div><${Tabs} label="Pipeline" tabs=${TABS} chosen=${tab} onChoose=${(id) => navigate(link(cluster, "pipelines", name, ...(id === "flow" ? [] : [id])), { replace: true })} />
      <${TabPanel} id=${tab}>
        ${tab === "flow" && html`<div class="stack"><${Card} title="From source topics to outputs"><${FlowGraph} graph=${data.graph} cluster=${cluster} flows=${data.flows} /><//><${Flows} rows=${data.flows} /></div>`}
        ${tab === "batches" && html`<${Batches} batches=${data.batches} />`}
        ${tab === "dead-letters" && html`<${DeadLetters} cluster=${cluster} path=${path + "/dead-letters"} writable=${writable} />`}<//></div></div>`}<//>`;
}

function Flows({ rows }) {
  const columns = [
    { id: "flow", title: "Flow", sort: true, cell: (row) => html`<b>${row.flow}</b>${row.state && row.state !== "running" ? html` <${PipelineState} row=${row} />` : ""}${row.ui_url && html` <a class="small" href=${row.ui_url} target="_blank" rel="noopener noreferrer">Spark</a>`}` },
    { id: "rows_per_second", title: "Rows", number: true, sort: true, cell: (row) => format.rate(row.rows_per_second) },
    { id: "lag", title: "Lag", number: true, sort: true, cell: (row) => format.number(row.lag) },
    { id: "batch_seconds", title: "Last batch", number: true, sort: true, cell: (row) => format.duration(row.batch_seconds) },
    { id: "batch_id", title: "Batch id", number: true, low: true, cell: (row) => format.number(row.batch_id) },
    { id: "rows", title: "Rows in total", number: true, low: true, sort: true, cell: (row) => format.number(row.rows) },
    { id: "dead_letters", title: "Dead letters", number: true, sort: true, cell: (row) => format.number(row.dead_letters) },
  ];
  return html`<${Card} title="Flows" flush><${Table} label="Flows" columns=${columns} rows=${rows} keyOf=${(row) => row.flow} empty="The pipeline has reported no flow yet" /><//>`;
}

function Batches({ batches }) {
  const flows = [...new Set(batches.map((each) => each.flow))].sort();
  const recent = [...batches].sort((a, b) => a.time_ms - b.time_ms);
  const times = recent.map((each) => each.time_ms);
  const series = (field, unit) => flows.map((flow) => ({ name: flow + field, title: flow, unit, values: recent.map((each) => (each.flow === flow ? each[field] : undefined)) }));
  const columns = [
    { id: "flow", title: "Flow", cell: (row) => row.flow }, { id: "batch_id", title: "Batch", number: true, cell: (row) => format.number(row.batch_id) },
    { id: "time_ms", title: "Time", low: true, cell: (row) => format.time(row.time_ms, false) }, { id: "rows", title: "Rows", number: true, cell: (row) => format.number(row.rows) },
    { id: "seconds", title: "Duration", number: true, cell: (row) => format.duration(row.seconds) }, { id: "lag", title: "Lag", number: true, cell: (row) => format.number(row.lag) },
    { id: "phases", title: "Phases", low: true, cell: (row) => html`<span class="small muted">${Object.entries(row.phases_ms ?? {}).sort((a, b) => b[1] - a[1]).slice(0, 3).map(([phase, ms]) => `${phase} ${format.milliseconds(ms)}`).join(", ")}</span>` },
  ];
  if (!batches.length) return html`<div class="card"><${Empty} title="No batches yet" /></div>`;
  return html`<div class="stack"><div class="columns"><${Card} title="Duration of batches"><${Chart} times=${times} series=${series("seconds", "s")} /><//><${Card} title="Rows per batch"><${Chart} times=${times} series=${series("rows", "records")} /><//></div>
    <${Card} flush><${Table} label="Batches" columns=${columns} rows=${[...recent].reverse().slice(0, 100)} keyOf=${(row) => row.flow + row.batch_id} /><//></div>`;
}

function DeadLetters({ cluster, path, writable }) {
  const [reason, setReason] = useState("");
  const [open, setOpen] = useState(null);
  const letters = useData(path, { reason });
  const replay = (offsets) => showDialog("Replay dead letters", (close) => html`<${Replay} path=${path} reason=${reason} offsets=${offsets} close=${close} done=${letters.reload} />`);
  const columns = [
    { id: "offset", title: "Record", cell: (row) => html`<span class="mono">${row.partition}:${row.offset}</span>` },
    { id: "reason", title: "Reason", wrap: true, cell: (row) => row.reason ?? html`<span class="muted">unknown</span>` },
    { id: "source", title: "From", low: true, cell: (row) => row.source && html`<a href=${link(cluster, "topics", row.source.topic, "records") + `?from=offset&partition=${row.source.partition}&offset=${row.source.offset}`}>${row.source.topic}-${row.source.partition} @ ${format.number(row.source.offset)}</a>` },
    { id: "value", title: "Value", low: true, cell: (row) => html`<span class="mono">${(row.value ?? "null").slice(0, 160)}</span>` },
    { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => html`<span class="row nowrap-row"><${Button} small plain glyph="search" title=${`Show ${row.partition}:${row.offset}`} onClick=${() => showLetter(row)} /><${Button} small plain glyph="reset" title=${`Replay ${row.partition}:${row.offset}`} denied=${denied(writable)} onClick=${() => replay([{ partition: row.partition, offset: row.offset }])} /></span>` },
  ];
  return html`<${Loaded} from=${letters}>${(data) => html`<${Card} flush title="Dead letters" actions=${html`${data.topic && html`<a class="small" href=${link(cluster, "topics", data.topic, "records")}>${data.topic}</a>`}<${Button} small glyph="reset" denied=${denied(writable)} disabled=${!data.records.length} onClick=${() => replay(null)}>${reason ? "Replay this reason" : "Replay all"}<//>`}>
    <div class="toolbar" role="group" aria-label="Reasons"><button type="button" class="button small" aria-pressed=${reason ? "false" : "true"} onClick=${() => setReason("")}>All</button>
      ${data.reasons.map((each) => html`<button type="button" class="button small" key=${each.reason} aria-pressed=${each.reason === reason ? "true" : "false"} onClick=${() => setReason(each.reason)}>${each.reason} <${Badge}>${format.number(each.count)}<//></button>`)}</div>
    <${Table} label="Dead letters" columns=${columns} rows=${data.records} keyOf=${(row) => row.partition + ":" + row.offset} empty=${html`<${Empty} title="No dead letters">Every row had the form that the pipeline expects.<//>`} /><//>`}<//>`;
}

function showLetter(row) {
  showDialog(`Dead letter ${row.partition}:${row.offset}`, () => html`<div class="content"><div class="callout" data-tone="warn">${row.reason ?? "The record has no header with a reason."}</div>
    ${row.source && html`<p class="muted small">From ${row.source.topic}-${row.source.partition}, offset ${format.number(row.source.offset)}, ${format.time(row.source.timestamp_ms)}</p>`}
    <h3>Key</h3><pre class="code">${row.key ?? "null"}</pre><h3>Value</h3><pre class="code">${row.value ?? "null"}</pre></div>`, { wide: true });
}

function Replay({ path, reason, offsets, close, done }) {
  const [topic, setTopic] = useState("");
  const submit = async () => {
    const answer = await post(path + "/replay", { reason: offsets ? null : reason || null, offsets, target_topic: topic.trim() || null });
    toast(`Replayed ${format.plural(answer.replayed, "record")}${answer.lost ? `; ${format.number(answer.lost)} no longer exist in their topic` : ""}`);
    done();
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Replay">
    <p>${offsets ? "The record" : reason ? `All records with the reason "${reason}"` : "All dead letters"} will be produced again.</p>
    <${Field} label="Into topic" name="target" value=${topic} onValue=${setTopic} placeholder="the topic they came from" spellcheck="false" autocomplete="off" autofocus /><//>`;
}
