// Transactions: open ones by producer, hanging ones, and abort.
import { html } from "../lib/ui.js";
import { base, post, useData } from "../lib/api.js";
import { link, navigate, useQuery } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Empty, Field, Loaded, PageHead, Problem, Search, TabPanel, Tabs } from "../components/basics.js";
import { confirmName } from "../components/dialogs.js";
import { Pager, Table } from "../components/table.js";
import { denied } from "./common.js";

const PER_PAGE = 100;
const TABS = [{ id: "all", title: "By transactional id" }, { id: "hanging", title: "Hanging" }];
const STATES = ["Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "PrepareEpochFence", "Dead"];
const tone = (row) => (row.hanging ? "bad" : row.state === "Ongoing" ? "violet" : row.state === "CompleteCommit" ? "good" : row.state.startsWith("Prepare") ? "warn" : undefined);

const abort = (cluster, name, body, done) => confirmName({
  title: "Abort a transaction", text: `The open transaction of ${name} will be aborted. Its records stay invisible to read_committed consumers, and its producer gets an error.`,
  name, label: "Abort", done: `Aborted the transaction of ${name}`, action: async () => { await post(base(cluster, "transactions", "abort"), body); done(); },
});

export function Transactions({ cluster, writable }) {
  const [query, setQuery] = useQuery();
  const tab = query.tab ?? "all";
  return html`<${PageHead} title="Transactions" />
    <${Tabs} label="Transactions" tabs=${TABS} chosen=${tab} onChoose=${(id) => navigate(link(cluster, "transactions"), { replace: true, query: { tab: id === "all" ? "" : id } })} />
    <${TabPanel} id=${tab}>${tab === "hanging" ? html`<${Hanging} cluster=${cluster} writable=${writable} />` : html`<${All} cluster=${cluster} writable=${writable} query=${query} setQuery=${setQuery} />`}<//>`;
}

function All({ cluster, writable, query, setQuery }) {
  const page = Number(query.page ?? 1);
  const list = useData(base(cluster, "transactions"), { page, per_page: PER_PAGE, search: query.search, state: query.state });
  const shown = list.data ?? list.last;
  const columns = [
    { id: "transactional_id", title: "Transactional id", cell: (row) => html`<b>${row.transactional_id}</b>` },
    { id: "state", title: "State", cell: (row) => html`<${Badge} tone=${tone(row)}>${row.state}<//>${row.hanging ? html` <${Badge} tone="bad">hanging<//>` : ""}` },
    { id: "age", title: "Open for", number: true, cell: (row) => format.milliseconds(row.age_ms) },
    { id: "producer_id", title: "Producer", number: true, low: true, cell: (row) => html`${row.producer_id}<span class="muted"> epoch ${row.producer_epoch}</span>` },
    { id: "partitions", title: "Partitions", low: true, cell: (row) => html`<span title=${row.partitions.map((each) => each.topic + "-" + each.partition).join("\n")}>${topicsOf(row.partitions)}</span>` },
    { id: "timeout_ms", title: "Timeout", number: true, low: true, cell: (row) => format.milliseconds(row.timeout_ms) },
    { id: "coordinator", title: "Coordinator", number: true, low: true, cell: (row) => row.coordinator ?? "–" },
    { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => row.state === "Ongoing" && html`<${Button} small tone="danger" denied=${denied(writable)} onClick=${() => abort(cluster, row.transactional_id, { transactional_id: row.transactional_id }, list.reload)}>Abort<//>` },
  ];
  return html`<${Card} flush><div class="toolbar"><${Search} value=${query.search} label="Search transactions" onSearch=${(search) => setQuery({ search, page: "" })} /><span class="grow"></span>
      <${Field} kind="select" quiet label="State" value=${query.state ?? ""} onValue=${(state) => setQuery({ state, page: "" })}><option value="">All states</option>${STATES.map((state) => html`<option value=${state} key=${state}>${state}</option>`)}<//></div>
    ${shown ? html`${list.error && html`<${Problem} error=${list.error} />`}<${Table} label="Transactions" columns=${columns} rows=${shown.items} keyOf=${(row) => row.transactional_id} empty=${html`<${Empty} title="No transactions">Transactional producers appear here.<//>`} />
      <${Pager} page=${page} perPage=${PER_PAGE} total=${shown.total} onPage=${(next) => setQuery({ page: next })} />` : html`<${Loaded} from=${list}>${() => null}<//>`}<//>`;
}

function topicsOf(partitions) {
  const counts = {};
  for (const each of partitions) (counts[each.topic] ??= []).push(each.partition);
  const names = Object.keys(counts);
  if (!names.length) return html`<span class="muted">none</span>`;
  return names.slice(0, 2).map((name) => `${name} ${format.ranges(counts[name])}`).join("; ") + (names.length > 2 ? ` and ${names.length - 2} more topics` : "");
}

function Hanging({ cluster, writable }) {
  const list = useData(base(cluster, "transactions", "hanging"), {}, { follow: false });
  const columns = [
    { id: "topic", title: "Partition", cell: (row) => html`<a href=${link(cluster, "topics", row.topic, "producers")}>${row.topic}-${row.partition}</a>` },
    { id: "transactional_id", title: "Transactional id", cell: (row) => row.transactional_id ?? html`<span class="muted">unknown</span>` },
    { id: "producer_id", title: "Producer", number: true, cell: (row) => row.producer_id },
    { id: "start_offset", title: "Since offset", number: true, low: true, cell: (row) => format.number(row.start_offset) },
    { id: "last", title: "Last record", low: true, cell: (row) => format.time(row.last_timestamp_ms, false) },
    { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => html`<${Button} small tone="danger" denied=${denied(writable)} onClick=${() => abort(cluster, `${row.topic}-${row.partition}`, { topic: row.topic, partition: row.partition, start_offset: row.start_offset }, list.reload)}>Abort<//>` },
  ];
  return html`<${Loaded} from=${list}>${(data) => html`<${Card} flush title="Partitions whose last stable offset does not move" actions=${html`<${Button} small glyph="reset" onClick=${list.reload}>Search again<//>`}>
    <${Table} label="Hanging transactions" columns=${columns} rows=${data.items} keyOf=${(row) => row.topic + row.partition + row.producer_id} empty=${html`<${Empty} title="No hanging transactions">Every open transaction has a coordinator that will end it.<//>`} /><//>`}<//>`;
}

/** Producers of one topic, with their open transactions. */
export function ProducerTable({ cluster, topic, writable }) {
  const list = useData(base(cluster, "topics", topic, "producers"));
  const columns = [
    { id: "partition", title: "Partition", number: true, sort: true, cell: (row) => row.partition },
    { id: "producer_id", title: "Producer", number: true, sort: true, cell: (row) => html`${row.producer_id}<span class="muted"> epoch ${row.producer_epoch}</span>` },
    { id: "last_sequence", title: "Last sequence", number: true, low: true, cell: (row) => format.number(row.last_sequence) },
    { id: "last_timestamp_ms", title: "Last record", sort: true, low: true, cell: (row) => format.time(row.last_timestamp_ms, false) },
    { id: "open", title: "Open transaction", sort: (row) => row.current_txn_start_offset, cell: (row) => row.current_txn_start_offset === null || row.current_txn_start_offset < 0 ? html`<span class="muted">none</span>` : html`<${Badge} tone="violet">since offset ${format.number(row.current_txn_start_offset)}<//>` },
    { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => row.current_txn_start_offset !== null && row.current_txn_start_offset >= 0 && html`<${Button} small tone="danger" denied=${denied(writable)} onClick=${() => abort(cluster, `${topic}-${row.partition}`, { topic, partition: row.partition, start_offset: row.current_txn_start_offset }, list.reload)}>Abort<//>` },
  ];
  return html`<${Loaded} from=${list}>${(data) => html`<${Card} flush><${Table} label="Producers" columns=${columns} rows=${data.items} keyOf=${(row) => row.partition + ":" + row.producer_id} empty="No idempotent or transactional producer wrote recently" initial=${{ by: "partition", order: "asc" }} /><//>`}<//>`;
}
