// Overview: the state of the cluster in numbers, throughput, and what needs attention first.
import { html, useState, useStore } from "../lib/ui.js";
import { base, useData } from "../lib/api.js";
import { live } from "../lib/live.js";
import { link } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Card, Empty, Glyph, Loaded, PageHead, Stat } from "../components/basics.js";
import { HistoryCard, Ranges } from "../components/chart.js";

const TONES = { error: "bad", warning: "warn", note: "accent" };

export function Overview({ cluster }) {
  const overview = useData(base(cluster, "overview"));
  const [minutes, setMinutes] = useState(60);
  return html`<${PageHead} title="Overview"><${Ranges} minutes=${minutes} onChoose=${setMinutes} /><//>
    <${Loaded} from=${overview}>${(data) => html`<div class="stack">
      <${Numbers} cluster=${cluster} data=${data} />
      <${Attention} cluster=${cluster} data=${data} />
      <div class="columns">
        <${HistoryCard} cluster=${cluster} title="Messages in" minutes=${minutes} lines=${{ messages_in: "messages" }} />
        <${HistoryCard} cluster=${cluster} title="Traffic" minutes=${minutes} lines=${{ bytes_in: "bytes in", bytes_out: "bytes out" }} />
      </div>
    </div>`}<//>`;
}

function Numbers({ cluster, data }) {
  const problem = data.under_replicated || data.offline || data.under_min_isr;
  const replicas = data.offline ? `${format.number(data.offline)} offline` : data.under_min_isr ? `${format.number(data.under_min_isr)} below min.insync.replicas` : "none below min.insync.replicas";
  return html`<div class="stats">
    <${Stat} name="Brokers" value=${format.number(data.brokers)} tone=${data.brokers_down.length ? "bad" : undefined} href=${link(cluster, "brokers")}
      note=${data.brokers_down.length ? `down: ${data.brokers_down.join(", ")}` : data.controller === null ? "no controller known" : `controller ${data.controller}`} />
    <${Stat} name="Topics" value=${format.number(data.topics)} note=${format.plural(data.partitions, "partition")} href=${link(cluster, "topics")} />
    <${Stat} name="Under-replicated" value=${format.number(data.under_replicated)} tone=${data.under_replicated || data.offline ? "bad" : data.under_min_isr ? "warn" : "good"} note=${problem ? replicas : "all replicas in sync"} href=${link(cluster, "topics") + "?sort=under_replicated&order=desc"} />
    <${Stat} name="Groups" value=${format.number(data.groups)} note=${data.groups_lagging ? `${format.number(data.groups_lagging)} behind` : "none behind"} href=${link(cluster, "groups")} />
    <${Stat} name="Messages in" value=${format.rate(data.messages_in_per_second)} note=${data.reassignments ? format.plural(data.reassignments, "reassignment") : "all topics"} />
    <${Stat} name="Bytes in" value=${format.byteRate(data.bytes_in_per_second)} note=${`out ${format.byteRate(data.bytes_out_per_second)}`} />
    <${Stat} name="Size of the logs" value=${format.bytes(data.size_bytes)} note=${data.kafka === "headrace" ? "Headrace" : "all replicas"} />
  </div>`;
}

function Attention({ cluster, data }) {
  const alerts = useStore(live, (value) => value.alerts)?.alerts?.filter((alert) => alert.state === "firing") ?? [];
  const items = [...data.attention].sort((a, b) => rank(a) - rank(b));
  const checked = data.attention_time_ms ? `checked ${format.ago(data.attention_time_ms)}` : "";
  return html`<${Card} title="Needs attention" flush actions=${html`<span class="muted small">${checked}</span>`}>
    ${!items.length && !alerts.length && html`<div class="empty good"><${Glyph} name="check" size="22" /><strong>Nothing needs attention</strong></div>`}
    <ul class="attention">
      ${alerts.map((alert) => html`<li key=${alert.rule_id + alert.target}><${Badge} tone="bad">alert<//><div><a href=${link(cluster, "alerts")}>${alert.rule}</a> ${alert.message}<p class="muted small">since ${format.time(alert.since_ms, false)}</p></div></li>`)}
      ${items.map((item) => html`<li key=${item.check + item.problem}><${Badge} tone=${TONES[item.severity]}>${item.severity}<//>
        <div class="break">${item.problem}<p class="muted small">${item.fix}</p>
          ${item.items?.length > 0 && html`<p class="small items">${item.items.map((name) => html`<code key=${name}>${name}</code> `)}${item.items_total > item.items.length && html`<span class="muted">and ${format.number(item.items_total - item.items.length)} more</span>`}</p>`}</div></li>`)}
    </ul><//>`;
}
const rank = (item) => ({ error: 0, warning: 1, note: 2 })[item.severity] ?? 3;
