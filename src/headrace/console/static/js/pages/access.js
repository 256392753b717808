// Access: users, ACLs, quotas and delegation tokens.
import { html, useState } from "../lib/ui.js";
import { base, post, put, remove, request, useData } from "../lib/api.js";
import { link, navigate, useQuery } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Empty, Field, Loaded, PageHead, TabPanel, Tabs } from "../components/basics.js";
import { DialogForm, confirmName, run, showDialog, toast } from "../components/dialogs.js";
import { Table } from "../components/table.js";
import { denied } from "./common.js";

const TABS = [{ id: "users", title: "Users" }, { id: "acls", title: "ACLs" }, { id: "quotas", title: "Quotas" }, { id: "tokens", title: "Tokens" }];
const ACTIONS = { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true };
const dialog = (title, Form, props) => showDialog(title, (close) => html`<${Form} ...${props} close=${close} />`);

export function Access({ cluster, writable }) {
  const [query] = useQuery();
  const tab = query.tab ?? "users";
  const Content = { users: Users, acls: Acls, quotas: Quotas, tokens: Tokens }[tab] ?? Users;
  return html`<${PageHead} title="Access" />
    <${Tabs} label="Access" tabs=${TABS} chosen=${tab} onChoose=${(id) => navigate(link(cluster, "access"), { replace: true, query: { tab: id === "users" ? "" : id } })} />
    <${TabPanel} id=${tab}><${Content} path=${base(cluster, "access", tab)} writable=${writable} /><//>`;
}

/** A list that the cluster may not support, or may not show. */
function List({ from, title, action, label, columns, keyOf, empty }) {
  if ([400, 403, 404, 501].includes(from.error?.status)) return html`<div class="card"><${Empty} title=${from.error.status === 403 ? "No right to see this" : "Not available on this cluster"}>${from.error.message}<//></div>`;
  return html`<${Loaded} from=${from}>${(data) => html`<${Card} flush title=${title} actions=${action}><${Table} label=${label} columns=${columns} rows=${data.items} keyOf=${keyOf} empty=${empty} /><//>`}<//>`;
}

function Users({ path, writable }) {
  const list = useData(path, { per_page: 500 });
  const gone = (user, mechanism) => confirmName({ title: `Delete ${user}`, text: `The ${mechanism} credential of ${user} will be deleted. The user cannot log in with it any more.`, name: user, label: "Delete", done: `Deleted the credential of ${user}`, action: async () => { await remove(path + "/" + encodeURIComponent(user), { mechanism }); list.reload(); } });
  const columns = [
    { id: "name", title: "User", sort: true, cell: (row) => html`<b>${row.name}</b>` },
    { id: "mechanisms", title: "SCRAM credentials", cell: (row) => row.mechanisms.map((each) => html`<${Badge} key=${each.mechanism} title=${`${each.iterations} iterations`}>${each.mechanism}<//> `) },
    { ...ACTIONS, cell: (row) => html`<span class="row nowrap-row"><${Button} small plain glyph="edit" title=${`New password for ${row.name}`} denied=${denied(writable)} onClick=${() => dialog(`New password for ${row.name}`, UserForm, { path, name: row.name, done: list.reload })} />
      ${row.mechanisms.map((each) => html`<${Button} key=${each.mechanism} small plain glyph="trash" title=${`Delete ${each.mechanism} of ${row.name}`} denied=${denied(writable)} onClick=${() => gone(row.name, each.mechanism)} />`)}</span>` },
  ];
  return html`<${List} from=${list} title="Users with SCRAM credentials" label="Users" columns=${columns} keyOf=${(row) => row.name} empty=${html`<${Empty} title="No users">Users of PLAIN or OAUTHBEARER are not stored in the cluster.<//>`}
    action=${html`<${Button} small glyph="plus" denied=${denied(writable)} onClick=${() => dialog("Add a user", UserForm, { path, done: list.reload })}>Add user<//>`} />`;
}

function UserForm({ path, name: known, close, done }) {
  const [name, setName] = useState(known ?? "");
  const [mechanism, setMechanism] = useState("SCRAM-SHA-512");
  const [password, setPassword] = useState("");
  const submit = async () => {
    await put(path + "/" + encodeURIComponent(name.trim()), { mechanism, password, iterations: null });
    toast(`Stored the credential of ${name.trim()}`);
    done();
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Store">
    ${!known && html`<${Field} label="User" name="user" value=${name} onValue=${setName} required autofocus spellcheck="false" autocomplete="off" />`}
    <${Field} kind="select" label="Mechanism" value=${mechanism} onValue=${setMechanism}><option value="SCRAM-SHA-512">SCRAM-SHA-512</option><option value="SCRAM-SHA-256">SCRAM-SHA-256</option><//>
    <${Field} label="Password" name="new_password" type="password" value=${password} onValue=${setPassword} required autocomplete="new-password" /><//>`;
}

const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"];

function Acls({ path, writable }) {
  const [filter, setFilter] = useState({ principal: "", resource_type: "", resource_name: "" });
  const list = useData(path, { ...filter, per_page: 500 });
  const set = (name) => (value) => setFilter({ ...filter, [name]: value });
  const gone = (acl) => confirmName({ title: "Delete an ACL", text: `${acl.permission} ${acl.operation} on ${acl.resource_type} ${acl.resource_name} for ${acl.principal}`, name: acl.principal, label: "Delete", done: "Deleted the ACL", action: async () => { await post(path + "/delete", acl); list.reload(); } });
  const columns = [
    { id: "principal", title: "Principal", sort: true, cell: (row) => html`<b>${row.principal}</b>` },
    { id: "permission", title: "Permission", sort: true, cell: (row) => html`<${Badge} tone=${row.permission === "DENY" ? "bad" : "good"}>${row.permission}<//>` },
    { id: "operation", title: "Operation", sort: true, cell: (row) => row.operation },
    { id: "resource_type", title: "Resource", sort: true, cell: (row) => html`<span class="muted">${row.resource_type.toLowerCase()}</span> ${row.resource_name}${row.pattern_type === "PREFIXED" ? html` <${Badge} tone="accent">prefix<//>` : ""}` },
    { id: "host", title: "Host", low: true, cell: (row) => row.host === "*" ? html`<span class="muted">any</span>` : row.host },
    { ...ACTIONS, cell: (row) => html`<${Button} small plain glyph="trash" title=${`Delete ${row.permission} ${row.operation} of ${row.principal}`} denied=${denied(writable)} onClick=${() => gone(row)} />` },
  ];
  return html`<div class="card toolbar acl-filter"><input type="search" data-search aria-label="Principal" placeholder="Principal, e.g. User:alice" value=${filter.principal} onChange=${(event) => set("principal")(event.target.value.trim())} />
      <${Field} kind="select" quiet label="Resource type" value=${filter.resource_type} onValue=${set("resource_type")}><option value="">All resources</option>${RESOURCES.map((each) => html`<option value=${each} key=${each}>${each}</option>`)}<//>
      <input aria-label="Resource name" placeholder="Resource name" value=${filter.resource_name} onChange=${(event) => set("resource_name")(event.target.value.trim())} /></div>
    <${List} from=${list} title="Access control lists" label="ACLs" columns=${columns} keyOf=${(row) => Object.values(row).join("|")} empty=${html`<${Empty} title="No ACLs">Without ACLs and an authorizer every client may do everything.<//>`}
      action=${html`<${Button} small glyph="plus" denied=${denied(writable)} onClick=${() => dialog("Add an ACL", AclForm, { path, done: list.reload })}>Add ACL<//>`} />`;
}

function AclForm({ path, close, done }) {
  const [acl, setAcl] = useState({ principal: "User:", host: "*", operation: "READ", permission: "ALLOW", resource_type: "TOPIC", resource_name: "", pattern_type: "LITERAL" });
  const set = (name) => (value) => setAcl({ ...acl, [name]: value, ...(name === "resource_type" && value === "CLUSTER" ? { resource_name: "kafka-cluster", pattern_type: "LITERAL" } : {}) });
  const choice = (label, name, values) => html`<${Field} kind="select" label=${label} name=${name} value=${acl[name]} onValue=${set(name)}>${values.map((each) => html`<option value=${each} key=${each}>${each}</option>`)}<//>`;
  const submit = async () => { await post(path, acl); toast(`Added an ACL of ${acl.principal}`); done(); };
  return html`<${DialogForm} close=${close} submit=${submit} label="Add"><div class="form">
    <div class="pair"><${Field} label="Principal" name="principal" value=${acl.principal} onValue=${set("principal")} required autofocus spellcheck="false" autocomplete="off" hint="User:name, or User:* for everybody" /><${Field} label="Host" value=${acl.host} onValue=${set("host")} required hint="* for any" /></div>
    <div class="pair">${choice("Permission", "permission", ["ALLOW", "DENY"])}${choice("Operation", "operation", OPERATIONS)}</div>
    <div class="pair">${choice("Resource type", "resource_type", RESOURCES)}${choice("Pattern", "pattern_type", ["LITERAL", "PREFIXED"])}</div>
    <${Field} label="Resource name" name="resource_name" value=${acl.resource_name} onValue=${set("resource_name")} required spellcheck="false" autocomplete="off" hint="* for all, with pattern LITERAL" /></div><//>`;
}

const QUOTAS = { producer_byte_rate: "Produce, bytes/s", consumer_byte_rate: "Consume, bytes/s", request_percentage: "Request time, %", controller_mutation_rate: "Created and deleted partitions/s", connection_creation_rate: "New connections/s" };
const ENTITIES = { user: "User", "client-id": "Client id", ip: "IP address" };
const shown = (name, value) => (name.endsWith("byte_rate") ? format.byteRate(value) : name === "request_percentage" ? value + "%" : format.rate(value));
const entityText = (entity) => Object.entries(entity).map(([kind, name]) => `${ENTITIES[kind] ?? kind} ${name ?? "(default)"}`).join(", ");

function Quotas({ path, writable }) {
  const list = useData(path, { per_page: 500 });
  const gone = (row) => confirmName({ title: "Delete quotas", text: `All quotas of ${entityText(row.entity)} will be deleted.`, name: Object.values(row.entity)[0] ?? "default", label: "Delete", done: "Deleted the quotas", action: async () => { await put(path, { entity: row.entity, set: {}, remove: Object.keys(row.quotas) }); list.reload(); } });
  const columns = [
    { id: "entity", title: "For", cell: (row) => Object.entries(row.entity).map(([kind, name]) => html`<span key=${kind}><span class="muted">${ENTITIES[kind] ?? kind}</span> <b>${name ?? "default"}</b> </span>`) },
    { id: "quotas", title: "Quotas", wrap: true, cell: (row) => Object.entries(row.quotas).map(([name, value]) => html`<div key=${name}><span class="muted">${name}</span> ${shown(name, value)}</div>`) },
    { ...ACTIONS, cell: (row) => html`<span class="row nowrap-row"><${Button} small plain glyph="edit" title=${`Change quotas of ${entityText(row.entity)}`} denied=${denied(writable)} onClick=${() => dialog("Change quotas", QuotaForm, { path, row, done: list.reload })} />
      <${Button} small plain glyph="trash" title=${`Delete quotas of ${entityText(row.entity)}`} denied=${denied(writable)} onClick=${() => gone(row)} /></span>` },
  ];
  return html`<${List} from=${list} title="Client quotas" label="Quotas" columns=${columns} keyOf=${(row) => JSON.stringify(row.entity)} empty="No quotas"
    action=${html`<${Button} small glyph="plus" denied=${denied(writable)} onClick=${() => dialog("Add a quota", QuotaForm, { path, done: list.reload })}>Add quota<//>`} />`;
}

function QuotaForm({ path, row, close, done }) {
  const [kind, setKind] = useState("user");
  const [name, setName] = useState("");
  const [values, setValues] = useState(Object.fromEntries(Object.keys(QUOTAS).map((each) => [each, row?.quotas[each] ?? ""])));
  const submit = async () => {
    const entity = row?.entity ?? { [kind]: name.trim() || null };
    const set = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== "").map(([each, value]) => [each, Number(value)]));
    await put(path, { entity, set, remove: Object.keys(row?.quotas ?? {}).filter((each) => values[each] === "") });
    toast(`Stored quotas of ${entityText(entity)}`);
    done();
  };
  const names = Object.keys(QUOTAS).filter((each) => (each === "connection_creation_rate") === (row ? "ip" in row.entity : kind === "ip"));
  return html`<${DialogForm} close=${close} submit=${submit} label="Store"><div class="form">
    ${row ? html`<p>${entityText(row.entity)}</p>` : html`<div class="pair"><${Field} kind="select" label="For" value=${kind} onValue=${setKind}>${Object.entries(ENTITIES).map(([id, title]) => html`<option value=${id} key=${id}>${title}</option>`)}<//>
      <${Field} label="Name" name="entity" value=${name} onValue=${setName} placeholder="empty: the default" spellcheck="false" autocomplete="off" /></div>`}
    ${names.map((each) => html`<${Field} key=${each} label=${QUOTAS[each]} name=${each} type="number" min="0" step="any" value=${values[each]} onValue=${(value) => setValues({ ...values, [each]: value })} placeholder="no limit" />`)}</div><//>`;
}

function Tokens({ path, writable }) {
  const list = useData(path, { per_page: 500 }, { follow: false });
  const withHmac = (title, label, token, act, tone) => dialog(title, HmacForm, { label, token, act, tone, done: list.reload });
  const columns = [
    { id: "token_id", title: "Token", cell: (row) => html`<b class="mono">${row.token_id}</b>` },
    { id: "owner", title: "Owner", sort: true, cell: (row) => row.owner },
    { id: "expiry_time_ms", title: "Expires", sort: true, cell: (row) => format.time(row.expiry_time_ms, false) },
    { id: "max_time_ms", title: "At the latest", low: true, cell: (row) => format.time(row.max_time_ms, false) },
    { id: "renewers", title: "Renewers", low: true, cell: (row) => row.renewers.join(", ") || "–" },
    { ...ACTIONS, cell: (row) => html`<span class="row nowrap-row"><${Button} small denied=${denied(writable)} onClick=${() => withHmac(`Renew ${row.token_id}`, "Renew", row, (headers) => renew(path, row, headers))}>Renew<//>
      <${Button} small tone="danger" denied=${denied(writable)} onClick=${() => withHmac(`Expire ${row.token_id}`, "Expire", row, (headers) => remove(path + "/" + encodeURIComponent(row.token_id), {}, headers), "danger")}>Expire<//></span>` },
  ];
  const create = async () => { const token = await post(path, { renewers: [], max_lifetime_ms: null }); list.reload(); showDialog("A new token", () => html`<${NewToken} token=${token} />`); };
  return html`<${List} from=${list} title="Delegation tokens" label="Tokens" columns=${columns} keyOf=${(row) => row.token_id} empty="No tokens"
    action=${html`<${Button} small glyph="plus" denied=${denied(writable)} onClick=${() => run(create)}>Create token<//>`} />`;
}

const renew = (path, row, headers) => request("POST", `${path}/${encodeURIComponent(row.token_id)}/renew`, { body: { period_ms: null }, headers });

const NewToken = ({ token }) => html`<div class="content"><div class="callout" data-tone="warn">Copy the HMAC now: it is the password of the token and is not shown again.</div>
  <${Field} label="Token id" value=${token.token_id} readonly /><${Field} kind="textarea" rows="3" label="HMAC" value=${token.hmac} readonly /></div>`;

function HmacForm({ label, token, act, tone, close, done }) {
  const [hmac, setHmac] = useState("");
  const submit = async () => { await act({ "X-Token-Hmac": hmac.trim() }); toast(`${label}: ${token.token_id}`); done(); };
  return html`<${DialogForm} close=${close} submit=${submit} label=${label} tone=${tone}><${Field} kind="textarea" rows="3" label=${`HMAC of the token`} name="hmac" value=${hmac} onValue=${setHmac} required autofocus spellcheck="false" /><//>`;
}
