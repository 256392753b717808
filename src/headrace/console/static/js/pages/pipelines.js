// The list of Spark pipelines that publish their status.
import { html } from "../lib/ui.js";
import { base, useData } from "../lib/api.js";
import { link } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Badge, Card, Empty, Loaded, PageHead } from "../components/basics.js";
import { Table } from "../components/table.js";

const TONES = { running: "good", stopped: undefined, failed: "bad", stale: "warn" };
export const PipelineState = ({ row }) => html`<${Badge} tone=${TONES[row.state]} title=${row.error}>${row.state}<//>`;

export function PipelineList({ cluster }) {
  const list = useData(base(cluster, "pipelines"), { per_page: 500 });
  const columns = [
    { id: "pipeline", title: "Pipeline", sort: true, cell: (row) => html`<a href=${link(cluster, "pipelines", row.pipeline)}>${row.pipeline}</a>` },
    { id: "state", title: "State", sort: true, cell: (row) => html`<${PipelineState} row=${row} />` },
    { id: "rows_per_second", title: "Rows", number: true, sort: true, cell: (row) => format.rate(row.rows_per_second) },
    { id: "lag", title: "Lag", number: true, sort: true, cell: (row) => format.number(row.lag) },
    { id: "dead_letters", title: "Dead letters", number: true, sort: true, cell: (row) => row.dead_letters ? html`<span class="warn">${format.number(row.dead_letters)}</span>` : "0" },
    { id: "host", title: "Host", low: true, cell: (row) => row.host },
    { id: "started_ms", title: "Started", low: true, sort: true, cell: (row) => format.time(row.started_ms, false) },
    { id: "updated_ms", title: "Updated", low: true, cell: (row) => format.ago(row.updated_ms) },
  ];
  return html`<${PageHead} title="Pipelines" sub="Spark pipelines of this cluster" />
    <${Loaded} from=${list}>${(data) => html`<${Card} flush><${Table} label="Pipelines" columns=${columns} rows=${data.items} keyOf=${(row) => row.pipeline + row.run_id} initial=${{ by: "pipeline", order: "asc" }}
      empty=${html`<${Empty} title="No pipelines yet">A pipeline appears here when headrace pipeline run starts it.<//>`} /><//>`}<//>`;
}
