// Records of a topic: browse, search through the whole topic with progress, live tail, export, copy.
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { base, get, queryText, useData } from "../lib/api.js";
import { link, navigate, route, useQuery } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Empty, Field, PageHead, Progress, Search } from "../components/basics.js";
import { failed, showDialog } from "../components/dialogs.js";
import { Table } from "../components/table.js";
import { denied } from "./common.js";
import { copyRecords } from "./copy.js";
import { produceRecord } from "./produce.js";
import { RecordTable } from "./record_table.js";

const KEPT = 500;  // records that live tail and search keep on the page
const FILTERS = { filter_key: "Key", filter_value: "Value", filter_header: "Header", filter_path: "JSON path", filter_regex: "Regular expression" };
const HINTS = { filter_key: "contains", filter_value: "contains", filter_header: "name=value", filter_path: "$.customer.city=Oslo", filter_regex: "in key or value" };
const START = { from: "newest", partition: "", offset: "", time: "", limit: "50", key_decoder: "", value_decoder: "", isolation: "read_uncommitted", control: "", ...Object.fromEntries(Object.keys(FILTERS).map((name) => [name, ""])) };

/** Query parameters of the API from the form. */
function parameters(form) {
  const query = { ...form, time_ms: form.from === "time" ? format.parseTime(form.time) : null };
  delete query.time;
  if (form.from !== "offset") delete query.offset;
  if (form.control) query.control = "true";
  return query;
}

export function Records({ cluster, topic, writable, partitions }) {
  const path = base(cluster, "topics", topic, "records");
  const decoders = useData(base(cluster, "decoders"), {}, { follow: false });
  const [form, setForm] = useState(() => ({ ...START, ...Object.fromEntries(Object.entries(route.get().query).filter(([name]) => name in START)) }));
  const [more, setMore] = useState(() => Object.keys(FILTERS).some((name) => form[name]));
  const [state, setState] = useState({ mode: "idle", records: [], cursor: null, progress: null, note: "" });
  const [chosen, setChosen] = useState(new Set());
  const stream = useRef(null);
  const set = (name) => (value) => setForm((old) => ({ ...old, [name]: value }));
  const filtered = Object.keys(FILTERS).some((name) => form[name].trim());

  const stop = (note = "") => {
    stream.current?.close();
    stream.current?.abort?.abort();
    stream.current = null;
    if (note !== null) setState((old) => ({ ...old, mode: "idle", note }));
  };
  useEffect(() => () => stop(null), []);

  const begin = (mode) => {
    stop(null);
    setChosen(new Set());
    setState({ mode, records: [], cursor: null, progress: null, note: "" });
    navigate(location.pathname, { replace: true, query: Object.fromEntries(Object.entries(form).filter(([name, value]) => value !== START[name])) });
  };
  const browse = async (cursor = null) => {
    const old = cursor ? state.records : [];
    if (cursor) setState((value) => ({ ...value, mode: "browse" }));
    else begin("browse");
    const abort = new AbortController();
    const mine = (stream.current = { close() {}, abort });
    try {
      const answer = await get(path, { ...parameters(form), cursor }, abort.signal);
      if (mine === stream.current) setState({ mode: "idle", records: [...old, ...answer.records], cursor: answer.cursor ?? null, progress: null, note: answer.records.length ? "" : "No more records", read: true });
    } catch (error) {
      failed(error);
      if (mine === stream.current) setState((value) => ({ ...value, mode: "idle" }));
    }
  };
  const listen = (mode) => {
    begin(mode);
    const query = parameters(form);
    if (mode === "tail") { delete query.from; delete query.offset; delete query.time_ms; delete query.limit; }
    const source = new EventSource(path + "/" + mode + queryText(query));
    stream.current = source;
    const on = (name, handle) => source.addEventListener(name, (event) => stream.current === source && handle(event));
    on("records", (event) => {
      const data = JSON.parse(event.data);
      setState((old) => ({ ...old, records: mode === "tail" ? [...[...data.records].reverse(), ...old.records].slice(0, KEPT) : [...old.records, ...data.records].slice(0, KEPT), note: data.skipped ? `${format.number(data.skipped)} records were skipped: the topic is faster than the page` : old.note }));
    });
    on("progress", (event) => { const progress = JSON.parse(event.data); setState((old) => ({ ...old, progress })); });
    on("done", (event) => {
      const done = JSON.parse(event.data);
      source.close();
      stream.current = null;
      setState((old) => ({ ...old, mode: "idle", progress: done, read: true, note: `Searched ${format.number(done.scanned_records)} records, ${format.number(done.matched)} match${done.reason === "limit" ? `; stopped at ${format.number(done.matched)}` : ""}` }));
    });
    on("error", (event) => {
      if (event.data) {
        failed(new Error(JSON.parse(event.data).message));
        stop();
      } else if (mode === "search" || source.readyState === EventSource.CLOSED) {
        failed(new Error(`The connection of the ${mode === "search" ? "search" : "live tail"} was lost.`));
        stop();
      } else setState((old) => ({ ...old, note: "Reconnecting" }));
    });
    source.onopen = () => stream.current === source && setState((old) => ({ ...old, note: old.note === "Reconnecting" ? "" : old.note }));
  };
  useEffect(() => { if (filtered) listen("search"); else browse(); }, []);

  const submit = (event) => { event.preventDefault(); if (filtered) listen("search"); else browse(); };
  const busy = state.mode !== "idle";
  const selection = () => chosen.size ? { offsets: [...chosen].map((id) => { const [partition, offset] = id.split(":").map(Number); return { partition, offset }; }) } : { query: compactQuery(parameters(form)), max_records: 100000 };
  return html`<${Card} flush>
    <form class="record-form" onSubmit=${submit} aria-label="Records to show">
      <${Field} kind="select" label="Start at" name="from" value=${form.from} onValue=${set("from")}><option value="newest">Newest</option><option value="oldest">Oldest</option><option value="offset">Offset</option><option value="time">Time</option><//>
      ${form.from === "offset" && html`<${Field} label="Offset" name="offset" type="number" min="0" value=${form.offset} onValue=${set("offset")} required />`}
      ${form.from === "time" && html`<${Field} label="Time" name="time" type="datetime-local" step="1" value=${form.time} onValue=${set("time")} required />`}
      <${Field} kind="select" label="Partition" name="partition" value=${form.partition} onValue=${set("partition")}><option value="">All</option>${Array.from({ length: partitions }, (_, index) => html`<option value=${index} key=${index}>${index}</option>`)}<//>
      <${Field} kind="select" label="Limit" name="limit" value=${form.limit} onValue=${set("limit")}>${[20, 50, 100, 200, 500].map((each) => html`<option value=${each} key=${each}>${each}</option>`)}<//>
      <${DecoderField} label="Key as" value=${form.key_decoder} onValue=${set("key_decoder")} decoders=${decoders.data} />
      <${DecoderField} label="Value as" value=${form.value_decoder} onValue=${set("value_decoder")} decoders=${decoders.data} />
      <${Button} aria-expanded=${more ? "true" : "false"} aria-pressed=${more ? "true" : "false"} glyph="search" onClick=${() => setMore(!more)}>Filters<//>
      <span class="grow"></span>
      ${busy && state.mode !== "browse" ? html`<${Button} glyph="stop" onClick=${() => stop("Stopped")}>Stop<//>`
        : html`<${Button} type="submit" primary glyph=${filtered ? "search" : undefined} disabled=${busy}>${filtered ? "Search" : "Read"}<//><${Button} glyph="play" onClick=${() => listen("tail")}>Live tail<//>`}
      ${more && html`<div class="filters" role="group" aria-label="Filters">${Object.entries(FILTERS).map(([name, title]) => html`<${Field} key=${name} label=${title} name=${name} value=${form[name]} onValue=${set(name)} placeholder=${HINTS[name]} spellcheck="false" autocomplete="off" />`)}
        <${Field} kind="select" label="Transactions" value=${form.isolation} onValue=${set("isolation")}><option value="read_uncommitted">All records</option><option value="read_committed">Only committed</option><//>
        <${Field} type="checkbox" label="Show transaction markers" value=${!!form.control} onValue=${(on) => set("control")(on ? "1" : "")} /></div>`}
    </form>
    <${Status} state=${state} />
    <div class="toolbar">
      <span class="muted small" role="status">${state.mode === "tail" ? html`<${Badge} tone="good">live<//> newest first ` : ""}${format.plural(state.records.length, "record")}${chosen.size ? `, ${format.number(chosen.size)} selected` : ""}${state.note ? ` · ${state.note}` : ""}</span>
      <span class="grow"></span>
      <${Button} small glyph="download" onClick=${() => exportRecords(path, parameters(form))}>Export<//>
      <${Button} small glyph="copy" denied=${denied(writable)} disabled=${!state.records.length} onClick=${() => copyRecords(cluster, topic, selection())}>${chosen.size ? "Copy selected" : "Copy to topic"}<//>
    </div>
    ${state.records.length ? html`<${RecordTable} records=${state.records} chosen=${chosen} onChoose=${setChosen} />`
      : html`<${Empty} title=${state.mode === "tail" ? "Waiting for new records" : state.mode === "search" ? "No match yet" : state.mode === "browse" ? "Reading" : filtered ? "No record matches" : "No records"} />`}
    ${state.cursor && state.mode === "idle" && html`<div class="toolbar center"><${Button} onClick=${() => browse(state.cursor)}>${form.from === "newest" ? "Older records" : "More records"}<//></div>`}
  <//>`;
}

const compactQuery = (query) => Object.fromEntries(Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined));

function Status({ state }) {
  const progress = state.progress;
  if (state.mode !== "search" || !progress) return null;
  return html`<div class="search-progress"><${Progress} value=${(progress.percent ?? 0) / 100} label="Search" />
    <div class="row small muted"><span>${format.number(progress.scanned_records)} of ${format.number(progress.total_records)} records</span><span>${format.bytes(progress.scanned_bytes)}</span>
      <span><b>${format.number(progress.matched)}</b> match</span><span class="grow"></span><span>${format.rate(progress.records_per_second)}</span>${format.isKnown(progress.remaining_seconds) && html`<span>${format.duration(progress.remaining_seconds)} left</span>`}</div></div>`;
}

function DecoderField({ label, value, onValue, decoders }) {
  return html`<${Field} kind="select" label=${label} name=${label.toLowerCase().replace(" ", "_")} value=${value} onValue=${onValue}><option value="">Detect</option>
    ${(decoders?.items ?? []).filter((each) => each.name !== "auto").map((each) => html`<option value=${each.name} key=${each.name}>${each.title}${each.user ? " (own)" : ""}</option>`)}<//>`;
}

function exportRecords(path, query) {
  showDialog("Export records", (close) => html`<${Export} path=${path} query=${query} close=${close} />`);
}
function Export({ path, query, close }) {
  const [kind, setKind] = useState("jsonl");
  const [most, setMost] = useState("10000");
  const { limit: _, ...rest } = query;
  return html`<div class="content"><p class="muted">Exports records with the present start, partition, decoders and filters.</p>
      <div class="form"><div class="pair"><${Field} kind="select" label="Format" value=${kind} onValue=${setKind}><option value="jsonl">JSON lines</option><option value="csv">CSV</option><option value="parquet">Parquet</option><//>
      <${Field} label="At most" type="number" min="1" value=${most} onValue=${setMost} /></div></div></div>
    <footer><${Button} onClick=${close}>Cancel<//><a class="button primary" download href=${path + "/export" + queryText({ ...rest, format: kind, max_records: most })} onClick=${() => setTimeout(close, 0)}>Download</a></footer>`;
}

/** The page "Records": choose a topic. */
export function RecordsStart({ cluster, writable }) {
  const [query, setQuery] = useQuery();
  const topics = useData(base(cluster, "topics"), { per_page: 50, search: query.search, sort: "name", order: "asc" });
  const shown = topics.data ?? topics.last;
  const columns = [
    { id: "name", title: "Topic", cell: (row) => html`<a href=${link(cluster, "topics", row.name, "records")}>${row.name}</a>` },
    { id: "records", title: "Records", number: true, cell: (row) => format.number(row.records) },
    { id: "rate", title: "Rate", number: true, cell: (row) => format.rate(row.messages_in_per_second) },
    { id: "size", title: "Size", number: true, low: true, cell: (row) => format.bytes(row.size_bytes) },
    { id: "produce", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => html`<${Button} small plain glyph="send" title=${`Produce a record to ${row.name}`} denied=${denied(writable)} onClick=${() => produceRecord(cluster, row.name)} />` },
  ];
  return html`<${PageHead} title="Records" sub="Choose a topic to browse, search or follow its records" />
    <${Card} flush><div class="toolbar"><${Search} value=${query.search} label="Search topics" onSearch=${(search) => setQuery({ search })} /></div>
      <${Table} label="Topics" columns=${columns} rows=${shown?.items ?? []} keyOf=${(row) => row.name} empty=${topics.error?.message ?? (shown ? "No topic matches" : "Loading")} />
      ${shown && shown.total > shown.items.length && html`<div class="toolbar muted small">${format.number(shown.total - shown.items.length)} more topics: search for their name</div>`}<//>`;
}
