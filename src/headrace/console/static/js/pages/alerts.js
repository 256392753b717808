// Alerts and their rules.
import { html, useState } from "../lib/ui.js";
import { base, post, put, remove, useData } from "../lib/api.js";
import { link, navigate, useQuery } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Empty, Field, Loaded, PageHead, TabPanel, Tabs } from "../components/basics.js";
import { DialogForm, confirmName, run, showDialog, toast } from "../components/dialogs.js";
import { Table } from "../components/table.js";
import { denied } from "./common.js";

/** Title, unit of the threshold, what the target is. */
const KINDS = {
  group_lag: ["Lag of a group above", "records", "Group"],
  group_lag_seconds: ["Lag of a group in time above", "seconds", "Group"],
  topic_rate_above: ["Rate of a topic above", "messages/s", "Topic"],
  topic_rate_below: ["Rate of a topic below", "messages/s", "Topic"],
  under_replicated: ["Under-replicated partitions of a topic above", "partitions", "Topic"],
  offline: ["Partitions of a topic without a leader above", "partitions", "Topic"],
  disk_free: ["Free disk space of a log directory below", "percent", "Broker and log directory"],
  dead_letters: ["Dead letters of a pipeline above", "records", "Pipeline"],
  broker_down: ["Broker is missing", "", "Broker"],
};
const STATES = { firing: "bad", pending: "warn", resolved: "good" };
const TABS = [{ id: "alerts", title: "Alerts" }, { id: "rules", title: "Rules" }];

export function Alerts({ cluster, writable }) {
  const [query] = useQuery();
  const tab = query.tab ?? "alerts";
  const path = base(cluster, "alerts");
  const edit = (rule, reload) => showDialog(rule ? `Change ${rule.name}` : "Add a rule", (close) => html`<${RuleForm} path=${path} rule=${rule} close=${close} done=${reload} />`);
  const [added, setAdded] = useState(0);
  return html`<${PageHead} title="Alerts"><${Button} primary glyph="plus" denied=${denied(writable)} onClick=${() => edit(null, () => setAdded((value) => value + 1))}>Add rule<//><//>
    <${Tabs} label="Alerts" tabs=${TABS} chosen=${tab} onChoose=${(id) => navigate(link(cluster, "alerts"), { replace: true, query: { tab: id === "alerts" ? "" : id } })} />
    <${TabPanel} id=${tab}>${tab === "rules" ? html`<${Rules} path=${path} writable=${writable} edit=${edit} added=${added} />` : html`<${Present} path=${path} />`}<//>`;
}

function Present({ path }) {
  const list = useData(path);
  const columns = [
    { id: "state", title: "State", cell: (row) => html`<${Badge} tone=${STATES[row.state]}>${row.state}<//>` },
    { id: "rule", title: "Rule", wrap: true, cell: (row) => html`<b>${row.rule}</b>` },
    { id: "message", title: "Message", wrap: true, cell: (row) => row.message },
    { id: "target", title: "Target", low: true, cell: (row) => row.target || html`<span class="muted">cluster</span>` },
    { id: "since", title: "Since", low: true, cell: (row) => html`<span title=${format.time(row.since_ms, false)}>${format.ago(row.since_ms)}</span>` },
  ];
  const order = { firing: 0, pending: 1, resolved: 2 };
  return html`<${Loaded} from=${list}>${(data) => html`<${Card} flush><${Table} label="Alerts" columns=${columns} rows=${[...data.alerts].sort((a, b) => order[a.state] - order[b.state] || b.since_ms - a.since_ms)} keyOf=${(row) => row.rule_id + row.target}
    empty=${html`<${Empty} title="No alerts">Nothing exceeds the thresholds of the rules.<//>`} /><//>`}<//>`;
}

function Rules({ path, writable, edit, added }) {
  const list = useData(path + "/rules", {}, { asked: added });
  const test = (rule) => run(async () => {
    const answer = await post(`${path}/rules/${encodeURIComponent(rule.id)}/test`);
    if (!answer.delivered) throw new Error(`The webhook did not take the test alert: ${answer.error}`);
  }, `The webhook of ${rule.name} took a test alert`);
  const gone = (rule) => confirmName({ title: `Delete ${rule.name}`, text: "The rule and its alerts will be deleted.", name: rule.name, label: "Delete", done: `Deleted ${rule.name}`, action: async () => { await remove(`${path}/rules/${encodeURIComponent(rule.id)}`); list.reload(); } });
  const columns = [
    { id: "name", title: "Rule", sort: true, cell: (row) => html`<b>${row.name}</b>${!row.enabled ? html` <${Badge}>off<//>` : ""}` },
    { id: "kind", title: "Condition", wrap: true, cell: condition },
    { id: "target", title: "Target", low: true, cell: (row) => row.target || html`<span class="muted">all</span>` },
    { id: "for_seconds", title: "For", number: true, low: true, cell: (row) => format.duration(row.for_seconds) },
    { id: "webhook", title: "Webhook", low: true, cell: (row) => row.webhook ? html`<span title=${row.webhook}>${row.webhook}</span>` : html`<span class="muted">none</span>` },
    { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => html`<span class="row nowrap-row">${row.webhook && html`<${Button} small plain glyph="send" title=${`Send a test alert of ${row.name}`} denied=${denied(writable)} onClick=${() => test(row)} />`}
      <${Button} small plain glyph="edit" title=${`Change ${row.name}`} denied=${denied(writable)} onClick=${() => edit(row, list.reload)} /><${Button} small plain glyph="trash" title=${`Delete ${row.name}`} denied=${denied(writable)} onClick=${() => gone(row)} /></span>` },
  ];
  return html`<${Loaded} from=${list}>${(data) => html`<${Card} flush><${Table} label="Rules" columns=${columns} rows=${data.items} keyOf=${(row) => row.id} empty=${html`<${Empty} title="No rules yet">Add a rule to see alerts here and to send them to a webhook.<//>`} /><//>`}<//>`;
}

const condition = (rule) => (rule.kind === "broker_down" ? KINDS.broker_down[0] : `${KINDS[rule.kind]?.[0] ?? rule.kind} ${format.compact(rule.threshold)} ${KINDS[rule.kind]?.[1] ?? ""}`);

function RuleForm({ path, rule, close, done }) {
  const [form, setForm] = useState(rule ?? { id: "", name: "", kind: "group_lag", target: "*", threshold: 10000, for_seconds: 60, enabled: true, webhook: "" });
  const set = (name) => (value) => setForm({ ...form, [name]: value });
  const target = KINDS[form.kind]?.[2];
  const submit = async () => {
    const { id, ...rest } = form;
    const body = { ...rest, name: form.name.trim(), target: form.target.trim(), threshold: form.kind === "broker_down" ? 0 : Number(form.threshold), for_seconds: Number(form.for_seconds), webhook: form.webhook || null };
    if (rule) await put(`${path}/rules/${encodeURIComponent(rule.id)}`, body);
    else await post(path + "/rules", body);
    toast(`Stored ${body.name}`);
    done();
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Store"><div class="form">
    <${Field} label="Name" name="name" value=${form.name} onValue=${set("name")} required autofocus autocomplete="off" />
    <${Field} kind="select" label="Condition" name="kind" value=${form.kind} onValue=${set("kind")}>${Object.entries(KINDS).map(([id, [title]]) => html`<option value=${id} key=${id}>${title}</option>`)}<//>
    <div class="pair"><${Field} label=${target ?? "Target"} name="target" value=${form.target} onValue=${set("target")} hint="A name, or a pattern with * and ?" placeholder="all" spellcheck="false" />
      ${form.kind !== "broker_down" && html`<${Field} label="Threshold" name="threshold" type="number" step="any" value=${form.threshold} onValue=${set("threshold")} hint=${KINDS[form.kind]?.[1]} required />`}
      <${Field} label="For seconds" name="for_seconds" type="number" min="0" value=${form.for_seconds} onValue=${set("for_seconds")} required /></div>
    <${Field} label="Webhook" name="webhook" type="url" value=${form.webhook ?? ""} onValue=${set("webhook")} placeholder="none" hint="Gets each alert as a JSON document" />
    <${Field} type="checkbox" label="Enabled" value=${form.enabled} onValue=${set("enabled")} /></div><//>`;
}
