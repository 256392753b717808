// The list of consumer groups with their lag.
import { html } from "../lib/ui.js";
import { base, useData } from "../lib/api.js";
import { link, useQuery } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Card, Empty, Field, Loaded, PageHead, Problem, Search } from "../components/basics.js";
import { Pager, Table } from "../components/table.js";

const PER_PAGE = 100;
const STATES = ["Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead"];

export const GroupState = ({ state }) => html`<${Badge} tone=${state === "Stable" ? "good" : state === "Empty" || state === "Dead" ? undefined : "warn"}>${state}<//>`;
/** Null: the lag does not shrink. */
export const drain = (row) => (row.lag === 0 || row.drain_seconds === 0 ? html`<span class="good">caught up</span>` : format.isKnown(row.drain_seconds) ? format.duration(row.drain_seconds) : row.lag ? html`<span class="warn">does not shrink</span>` : "–");

export function GroupList({ cluster }) {
  const [query, setQuery] = useQuery();
  const page = Number(query.page ?? 1);
  const sorted = { by: query.sort ?? "lag", order: query.order ?? "desc" };
  const groups = useData(base(cluster, "groups"), { page, per_page: PER_PAGE, search: query.search, state: query.state, sort: sorted.by, order: sorted.order });
  const shown = groups.data ?? groups.last;
  const columns = [
    { id: "group", title: "Group", sort: true, cell: (row) => html`<a href=${link(cluster, "groups", row.group)}>${row.group}</a>` },
    { id: "lag", title: "Lag", number: true, sort: true, cell: (row) => format.number(row.lag) },
    { id: "lag_seconds", title: "Lag in time", number: true, sort: true, cell: (row) => format.duration(row.lag_seconds) },
    { id: "consumed_per_second", title: "Consumes", number: true, low: true, cell: (row) => format.rate(row.consumed_per_second) },
    { id: "drain_seconds", title: "Drained in", number: true, low: true, cell: drain },
    { id: "members", title: "Members", number: true, sort: true, low: true, cell: (row) => format.number(row.members) },
    { id: "topics", title: "Topics", number: true, low: true, cell: (row) => format.number(row.topics) },
    { id: "state", title: "State", sort: true, cell: (row) => html`<${GroupState} state=${row.state} />` },
  ];
  const none = html`<${Empty} title=${query.search || query.state ? "No group matches" : "No groups yet"} />`;
  return html`<${PageHead} title="Groups" sub=${shown ? format.plural(shown.total, "group") : " "} />
    <${Card} flush><div class="toolbar"><${Search} value=${query.search} label="Search groups" onSearch=${(search) => setQuery({ search, page: "" })} /><span class="grow"></span>
        <${Field} kind="select" quiet label="State" value=${query.state ?? ""} onValue=${(state) => setQuery({ state, page: "" })}><option value="">All states</option>${STATES.map((state) => html`<option value=${state} key=${state}>${state}</option>`)}<//></div>
      ${shown ? html`${groups.error && html`<${Problem} error=${groups.error} />`}<${Table} label="Groups" columns=${columns} rows=${shown.items} keyOf=${(row) => row.group} sorted=${sorted} onSort=${({ by, order }) => setQuery({ sort: by, order, page: "" })} empty=${none} />
        <${Pager} page=${page} perPage=${PER_PAGE} total=${shown.total} onPage=${(next) => setQuery({ page: next })} />` : html`<${Loaded} from=${groups}>${() => null}<//>`}<//>`;
}
