// What several pages share: the hint of a read-only console, and the table of configs.
import { html, useState } from "../lib/ui.js";
import { patch, useData } from "../lib/api.js";
import { Badge, Button, Card, Field, Loaded, Search } from "../components/basics.js";
import { DialogForm, run, showDialog, toast } from "../components/dialogs.js";
import { Table } from "../components/table.js";

export const READ_ONLY = "Read-only: start the console with --write";
export const denied = (writable) => (writable ? undefined : READ_ONLY);

/** Configs at `path` (topics and brokers): documentation, values that differ from the default, changes. */
export function Configs({ path, writable, what }) {
  const configs = useData(path);
  const [search, setSearch] = useState("");
  const [changed, setChanged] = useState(false);
  const edit = (config) => showDialog(config.name, (close) => html`<${EditConfig} path=${path} config=${config} close=${close} done=${configs.reload} />`);
  const reset = (config) => run(() => patch(path, { set: {}, reset: [config.name] }), () => { configs.reload(); return `Reset ${config.name} of ${what}`; });
  const columns = [
    { id: "name", title: "Config", sort: true, wrap: true, cell: (row) => html`<b class="mono">${row.name}</b><div class="muted small documentation">${row.documentation}</div>` },
    { id: "value", title: "Value", wrap: true, cell: (row) => html`<span class="mono ${row.is_default ? "" : "accent-text"}">${row.sensitive ? "hidden" : row.value === "" ? html`<i class="muted">empty</i>` : row.value ?? "–"}</span>
      ${!row.is_default && !row.sensitive && row.default != null && row.default !== row.value && html`<div class="muted small">default ${row.default === "" ? "empty" : row.default}</div>`}` },
    { id: "source", title: "Source", low: true, sort: true, cell: (row) => html`<${Badge} tone=${row.is_default ? undefined : "accent"}>${row.source}<//>` },
    { id: "actions", title: html`<span class="sr">Actions</span>`, tight: true, cell: (row) => row.read_only ? html`<span class="muted small" title="Only in the broker's file, at a restart">read-only</span>` : html`<span class="row nowrap-row">
        <${Button} small plain glyph="edit" title=${`Change ${row.name}`} denied=${denied(writable)} onClick=${() => edit(row)} />
        ${!row.is_default && html`<${Button} small plain glyph="reset" title=${`Reset ${row.name}`} denied=${denied(writable)} onClick=${() => reset(row)} />`}</span>` },
  ];
  return html`<${Loaded} from=${configs}>${(data) => {
    const words = search.toLowerCase();
    const rows = data.configs.filter((each) => (!changed || !each.is_default) && (each.name.includes(words) || (each.documentation ?? "").toLowerCase().includes(words)))
      .sort((a, b) => a.is_default - b.is_default || (a.name < b.name ? -1 : 1));
    return html`<${Card} flush><div class="toolbar"><${Search} value=${search} label="Search configs" delay=${0} onSearch=${setSearch} /><span class="grow"></span>
        <${Field} type="checkbox" label="Only values that differ from the default" value=${changed} onValue=${setChanged} /></div>
      <${ConfigTable} columns=${columns} rows=${rows} /><//>`;
  }}<//>`;
}
// Rows have different heights, so the table is not drawn in parts.
const ConfigTable = ({ columns, rows }) => html`<div class="config-table">${chunks(rows, 100).map((part, index) => html`<${Table} key=${index} label="Configs" columns=${columns} rows=${part} keyOf=${(row) => row.name} empty="No config matches" />`)}${!rows.length && html`<div class="empty">No config matches</div>`}</div>`;
const chunks = (rows, size) => Array.from({ length: Math.ceil(rows.length / size) }, (_, index) => rows.slice(index * size, (index + 1) * size));

function EditConfig({ path, config, close, done }) {
  const [value, setValue] = useState(config.value ?? "");
  const submit = async () => {
    await patch(path, { set: { [config.name]: String(value) }, reset: [] });
    toast(`Changed ${config.name}`);
    done();
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Change">
    ${config.documentation && html`<p class="muted">${config.documentation}</p>`}
    ${config.type === "boolean" ? html`<${Field} kind="select" label="Value" value=${value} onValue=${setValue}><option value="true">true</option><option value="false">false</option><//>`
      : html`<${Field} label="Value" name="value" value=${value} onValue=${setValue} autofocus spellcheck="false" autocomplete="off" hint=${`Type ${config.type}${config.default != null ? `, default ${config.default === "" ? "empty" : config.default}` : ""}`} />`}<//>`;
}
