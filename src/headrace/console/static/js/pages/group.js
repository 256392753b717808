// One consumer group: lag per partition in records and seconds, history, members, reset of offsets.
import { html, useState } from "../lib/ui.js";
import { base, post, remove, useData } from "../lib/api.js";
import { link, navigate } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Field, Loaded, PageHead, Stat, TabPanel, Tabs } from "../components/basics.js";
import { DialogForm, confirmName, showDialog, toast } from "../components/dialogs.js";
import { HistoryCard, Ranges } from "../components/chart.js";
import { Table } from "../components/table.js";
import { denied } from "./common.js";
import { GroupState, drain } from "./groups.js";

const TABS = [{ id: "partitions", title: "Partitions" }, { id: "members", title: "Members" }];

export function Group({ cluster, writable, item: name, tab = "partitions" }) {
  const path = base(cluster, "groups", name);
  const group = useData(path);
  const [minutes, setMinutes] = useState(60);
  const data = group.data;
  const may = (operation) => denied(writable) ?? (data?.operations && !data.operations.includes(operation) ? `You have no right ${operation} on group ${name}` : undefined);
  const busy = data?.member_list?.length ? `The group has ${format.plural(data.member_list.length, "member")}: stop them first` : undefined;
  const reset = () => showDialog(`Reset offsets of ${name}`, (close) => html`<${Reset} path=${path} group=${data} close=${close} done=${group.reload} />`, { wide: true });
  const gone = async () => { await remove(path); navigate(link(cluster, "groups")); };
  return html`<${PageHead} title=${name} crumb=${{ title: "Groups", href: link(cluster, "groups") }}>
      ${data && html`<${GroupState} state=${data.state} />`}
      <${Button} glyph="reset" denied=${may("READ") ?? busy} onClick=${reset}>Reset offsets<//>
      <${Button} tone="danger" glyph="trash" denied=${may("DELETE") ?? busy} onClick=${() => confirmName({ title: `Delete ${name}`, text: "The group and its committed offsets will be deleted. Consumers with its id start anew.", name, label: "Delete", done: `Deleted ${name}`, action: gone })}>Delete<//><//>
    <${Loaded} from=${group}>${(group_) => html`<div class="stack">
      <div class="stats">
        <${Stat} name="Lag" value=${format.number(group_.lag)} note="records" tone=${group_.lag ? undefined : "good"} />
        <${Stat} name="Lag in time" value=${format.duration(group_.lag_seconds)} note="age of the oldest record to consume" />
        <${Stat} name="Drained in" value=${drain(group_)} note="at the present rates" />
        <${Stat} name="Consumes" value=${format.rate(group_.consumed_per_second)} note="records" />
        <${Stat} name="Members" value=${format.number(group_.members)} note=${group_.assignor || group_.protocol || group_.type} />
        <${Stat} name="Coordinator" value=${group_.coordinator ?? "–"} note="broker" />
      </div>
      <div><${Ranges} minutes=${minutes} onChoose=${setMinutes} /></div>
      <div class="columns">
        <${HistoryCard} cluster=${cluster} title="Lag in records" minutes=${minutes} height=${130} lines=${{ [`group.lag:${name}`]: "lag" }} />
        <${HistoryCard} cluster=${cluster} title="Lag in time" minutes=${minutes} height=${130} lines=${{ [`group.lag_seconds:${name}`]: "lag" }} />
      </div>
      <div><${Tabs} label="Group" tabs=${TABS} chosen=${tab} onChoose=${(id) => navigate(link(cluster, "groups", name, ...(id === "partitions" ? [] : [id])), { replace: true })} />
      <${TabPanel} id=${tab}>${tab === "members" ? html`<${Members} rows=${group_.member_list} />` : html`<${Partitions} cluster=${cluster} rows=${group_.partitions} members=${group_.member_list} />`}<//></div>
    </div>`}<//>`;
}

function Partitions({ cluster, rows, members }) {
  const clients = Object.fromEntries(members.map((member) => [member.member_id, member.client_id]));
  const columns = [
    { id: "topic", title: "Topic", sort: true, cell: (row) => html`<a href=${link(cluster, "topics", row.topic)}>${row.topic}</a>` },
    { id: "partition", title: "Partition", number: true, sort: true, cell: (row) => row.partition },
    { id: "committed", title: "Committed", number: true, low: true, cell: (row) => format.number(row.committed) },
    { id: "end_offset", title: "End offset", number: true, low: true, cell: (row) => format.number(row.end_offset) },
    { id: "lag", title: "Lag", number: true, sort: true, cell: (row) => format.number(row.lag) },
    { id: "lag_seconds", title: "Lag in time", number: true, sort: true, cell: (row) => format.duration(row.lag_seconds) },
    { id: "consumed_per_second", title: "Consumes", number: true, low: true, cell: (row) => format.rate(row.consumed_per_second) },
    { id: "drain", title: "Drained in", number: true, low: true, cell: drain },
    { id: "member_id", title: "Member", low: true, cell: (row) => row.member_id ? html`<span title=${row.member_id}>${clients[row.member_id] || row.member_id}</span>` : html`<span class="muted">none</span>` },
  ];
  return html`<${Card} flush><${Table} label="Partitions of the group" columns=${columns} rows=${rows} keyOf=${(row) => row.topic + "/" + row.partition} empty="The group has committed no offsets" initial=${{ by: "lag", order: "desc" }} /><//>`;
}

function Members({ rows }) {
  const columns = [
    { id: "client_id", title: "Client", sort: true, cell: (row) => html`<b>${row.client_id}</b>${row.instance_id && html` <${Badge} title="group.instance.id">${row.instance_id}<//>`}` },
    { id: "host", title: "Host", cell: (row) => row.host },
    { id: "member_id", title: "Member id", low: true, cell: (row) => html`<span class="mono small" title=${row.member_id}>${row.member_id}</span>` },
    { id: "assignment", title: "Assignment", wrap: true, cell: (row) => row.assignment.length ? row.assignment.map((each) => html`<div key=${each.topic}>${each.topic} <span class="muted">${format.ranges(each.partitions)}</span></div>`) : html`<span class="muted">nothing</span>` },
  ];
  return html`<${Card} flush><${Table} label="Members" columns=${columns} rows=${rows} keyOf=${(row) => row.member_id} empty="The group has no members" /><//>`;
}

const TARGETS = [["earliest", "Earliest record"], ["latest", "Latest: skip all"], ["timestamp", "Point in time"], ["duration", "Duration ago"], ["offset", "Offset"], ["shift", "Shift by records"]];

/** Two steps: preview, then apply exactly what was shown. */
function Reset({ path, group, close, done }) {
  const [to, setTo] = useState("earliest");
  const [value, setValue] = useState("");
  const [topic, setTopic] = useState("");
  const [preview, setPreview] = useState(null);
  const topics = [...new Set(group.partitions.map((each) => each.topic))].sort();
  const change = (set) => (next) => { set(next); setPreview(null); };
  const body = () => ({ topics: topic ? [topic] : null, partitions: null, to, value: { earliest: null, latest: null, timestamp: format.parseTime(value), duration: Math.round(Number(value) * 60000) }[to] ?? (to === "offset" || to === "shift" ? Number(value) : null) });
  const submit = async () => {
    if (!preview) { setPreview(await post(path + "/offsets/preview", body())); return false; }
    const applied = await post(path + "/offsets", body());
    toast(`Reset ${format.plural(applied.changes.length, "offset")} of ${group.group}`);
    done();
    return true;
  };
  const columns = [
    { id: "topic", title: "Topic", cell: (row) => row.topic }, { id: "partition", title: "Partition", number: true, cell: (row) => row.partition },
    { id: "old", title: "From", number: true, cell: (row) => format.number(row.old) }, { id: "new", title: "To", number: true, cell: (row) => html`<b>${format.number(row.new)}</b>` },
    { id: "records", title: "Records", number: true, cell: (row) => html`<span class=${row.records < 0 ? "warn" : ""}>${row.records > 0 ? "+" : ""}${format.number(row.records)}</span>` },
  ];
  return html`<${DialogForm} close=${close} submit=${submit} label=${preview ? "Reset offsets" : "Preview"} tone=${preview ? "danger" : undefined}>
    <div class="form"><div class="pair">
      <${Field} kind="select" label="Move to" name="to" value=${to} onValue=${change((next) => { setTo(next); setValue(""); })}>${TARGETS.map(([id, title]) => html`<option value=${id} key=${id}>${title}</option>`)}<//>
      ${to === "timestamp" && html`<${Field} label="Time" type="datetime-local" step="1" value=${value} onValue=${change(setValue)} required />`}
      ${to === "duration" && html`<${Field} label="Minutes ago" type="number" min="0" value=${value} onValue=${change(setValue)} required />`}
      ${to === "offset" && html`<${Field} label="Offset" type="number" min="0" value=${value} onValue=${change(setValue)} required />`}
      ${to === "shift" && html`<${Field} label="Records, negative goes back" type="number" value=${value} onValue=${change(setValue)} required />`}
      <${Field} kind="select" label="Topic" value=${topic} onValue=${change(setTopic)}><option value="">All topics</option>${topics.map((each) => html`<option value=${each} key=${each}>${each}</option>`)}<//>
    </div></div>
    ${preview && html`<div class="callout">${format.plural(preview.changes.length, "partition")}: ${again(preview.changes)}</div>
      <div class="card"><${Table} label="Preview" columns=${columns} rows=${preview.changes} keyOf=${(row) => row.topic + row.partition} empty="Nothing changes" /></div>`}<//>`;
}
function again(changes) {
  const back = changes.reduce((sum, each) => sum + Math.max(0, -each.records), 0);
  const skipped = changes.reduce((sum, each) => sum + Math.max(0, each.records), 0);
  return [back && `${format.number(back)} records are consumed again`, skipped && `${format.number(skipped)} records are skipped`].filter(Boolean).join(", ") || "no offset changes";
}
