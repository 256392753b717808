// The list of topics, and the dialog that creates one.
import { html, useState } from "../lib/ui.js";
import { base, post, useData } from "../lib/api.js";
import { link, navigate, useQuery } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Button, Card, Empty, Field, Loaded, PageHead, Search } from "../components/basics.js";
import { DialogForm, showDialog, toast } from "../components/dialogs.js";
import { Pager, Table } from "../components/table.js";
import { READ_ONLY } from "./common.js";

const PER_PAGE = 100;

export function TopicList({ cluster, writable }) {
  const [query, setQuery] = useQuery();
  const page = Number(query.page ?? 1);
  const sorted = { by: query.sort ?? "name", order: query.order ?? "asc" };
  const topics = useData(base(cluster, "topics"), { page, per_page: PER_PAGE, search: query.search, sort: sorted.by, order: sorted.order, internal: query.internal === "1" });
  const shown = topics.data ?? topics.last;
  const columns = [
    { id: "name", title: "Topic", sort: true, cell: (row) => html`<a href=${link(cluster, "topics", row.name)}>${row.name}</a>${row.internal && html` <${Badge}>internal<//>`}` },
    { id: "partitions", title: "Partitions", number: true, sort: true, low: true, cell: (row) => format.number(row.partitions) },
    { id: "replication_factor", title: "Replicas", number: true, low: true, cell: (row) => row.replication_factor },
    { id: "messages_in_per_second", title: "Rate", number: true, sort: true, cell: (row) => format.rate(row.messages_in_per_second) },
    { id: "records", title: "Records", number: true, sort: true, low: true, cell: (row) => format.compact(row.records) },
    { id: "size_bytes", title: "Size", number: true, sort: true, cell: (row) => format.bytes(row.size_bytes) },
    { id: "groups", title: "Groups", number: true, low: true, cell: (row) => format.number(row.groups) },
    { id: "under_replicated", title: "State", sort: true, cell: (row) => html`<${TopicState} topic=${row} />` },
  ];
  const none = query.search ? html`<${Empty} title="No topic matches">Nothing contains "${query.search}".<//>` : html`<${Empty} title="No topics yet" />`;
  return html`<${PageHead} title="Topics" sub=${shown ? format.plural(shown.total, "topic") : " "}>
      <${Button} primary glyph="plus" denied=${!writable && READ_ONLY} onClick=${() => createTopic(cluster)}>Create topic<//><//>
    <${Card} flush><div class="toolbar">
        <${Search} value=${query.search} label="Search topics" onSearch=${(search) => setQuery({ search, page: "" })} /><span class="grow"></span>
        <${Field} type="checkbox" label="Internal topics" value=${query.internal === "1"} onValue=${(on) => setQuery({ internal: on ? "1" : "", page: "" })} /></div>
      ${shown ? html`${topics.error && html`<div class="callout" data-tone="bad" role="alert">${topics.error.message}</div>`}
        <${Table} label="Topics" columns=${columns} rows=${shown.items} keyOf=${(row) => row.name} sorted=${sorted} onSort=${({ by, order }) => setQuery({ sort: by, order, page: "" })} empty=${none} />
        <${Pager} page=${page} perPage=${PER_PAGE} total=${shown.total} onPage=${(next) => setQuery({ page: next })} />` : html`<${Loaded} from=${topics}>${() => null}<//>`}<//>`;
}

export function TopicState({ topic }) {
  if (topic.offline) return html`<${Badge} tone="bad">${format.number(topic.offline)} offline<//>`;
  if (topic.under_replicated) return html`<${Badge} tone="warn">${format.number(topic.under_replicated)} under-replicated<//>`;
  return html`<${Badge} tone="good">in sync<//>`;
}

function createTopic(cluster) {
  showDialog("Create a topic", (close) => html`<${CreateTopic} cluster=${cluster} close=${close} />`);
}

function CreateTopic({ cluster, close }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("");
  const [factor, setFactor] = useState("");
  const [configs, setConfigs] = useState("");
  const submit = async () => {
    await post(base(cluster, "topics"), {
      name: name.trim(), partitions: partitions ? Number(partitions) : null, replication_factor: factor ? Number(factor) : null, configs: parseConfigs(configs),
    });
    toast(`Created topic ${name.trim()}`);
    navigate(link(cluster, "topics", name.trim()));
  };
  return html`<${DialogForm} close=${close} submit=${submit} label="Create">
    <${Field} label="Name" name="name" value=${name} onValue=${setName} required autofocus autocomplete="off" spellcheck="false" maxlength="249" />
    <div class="form"><div class="pair"><${Field} label="Partitions" name="partitions" type="number" min="1" value=${partitions} onValue=${setPartitions} placeholder="default of the brokers" />
      <${Field} label="Replication factor" name="replication_factor" type="number" min="1" value=${factor} onValue=${setFactor} placeholder="default of the brokers" /></div></div>
    <${Field} kind="textarea" rows="3" label="Configs" name="configs" value=${configs} onValue=${setConfigs} hint="One name=value per line, for example retention.ms=86400000" spellcheck="false" /><//>`;
}

export function parseConfigs(text) {
  const configs = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) throw new Error(`'${line}' is not name=value`);
    configs[line.slice(0, at).trim()] = line.slice(at + 1).trim();
  }
  return configs;
}
