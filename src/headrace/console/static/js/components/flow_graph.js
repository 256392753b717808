// A pipeline as a graph from source topics through flows to output topics and tables, drawn in layers from left to right.
import { html } from "../lib/ui.js";
import { link } from "../lib/router.js";
import * as format from "../lib/format.js";
import { Empty } from "./basics.js";

const WIDTH = 208, HEIGHT = 46, GAP_X = 92, GAP_Y = 16, PAD = 4;
const KINDS = { topic: "topic", flow: "flow", table: "table" };

/** Node → layer: the longest path from a source. A cycle (a flow that reads its own output) does not add layers. */
function layers({ nodes, edges }) {
  const layer = Object.fromEntries(nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < nodes.length; round++) {
    let moved = false;
    for (const { from, to } of edges)
      if (from in layer && to in layer && layer[to] <= layer[from] && layer[from] + 1 < nodes.length) { layer[to] = layer[from] + 1; moved = true; }
    if (!moved) break;
  }
  return layer;
}

/** Places of nodes: each layer is ordered by the mean place of its neighbours on the left, so that few edges cross. */
function place(graph) {
  const layer = layers(graph);
  const columns = [];
  for (const node of graph.nodes) (columns[layer[node.id]] ??= []).push(node);
  const filled = columns.filter(Boolean);
  const rank = {};
  for (const column of filled) {
    const weight = (node) => {
      const before = graph.edges.filter((edge) => edge.to === node.id && edge.from in rank).map((edge) => rank[edge.from]);
      return before.length ? before.reduce((a, b) => a + b, 0) / before.length : 0;
    };
    const weights = new Map(column.map((node) => [node, weight(node)]));
    column.sort((a, b) => weights.get(a) - weights.get(b) || (a.name < b.name ? -1 : 1));
    column.forEach((node, index) => { rank[node.id] = index - column.length / 2; });
  }
  const tallest = Math.max(...filled.map((column) => column.length));
  const height = tallest * (HEIGHT + GAP_Y) - GAP_Y;
  const places = {};
  filled.forEach((column, x) => {
    const top = (height - (column.length * (HEIGHT + GAP_Y) - GAP_Y)) / 2;
    column.forEach((node, y) => { places[node.id] = { x: PAD + x * (WIDTH + GAP_X), y: PAD + top + y * (HEIGHT + GAP_Y) }; });
  });
  return { places, width: filled.length * (WIDTH + GAP_X) - GAP_X + 2 * PAD, height: height + 2 * PAD };
}

export function FlowGraph({ graph, cluster, flows }) {
  if (!graph.nodes.length) return html`<${Empty} title="The pipeline has reported no flow yet" />`;
  const { places, width, height } = place(graph);
  const flowOf = Object.fromEntries(flows.map((flow) => [flow.flow, flow]));
  const most = Math.max(1e-9, ...graph.edges.map((edge) => edge.rows_per_second ?? 0));
  const label = `Flow graph: ${graph.edges.map((edge) => `${nameOf(graph, edge.from)} to ${nameOf(graph, edge.to)}`).join(", ")}`;
  return html`<div class="table-wrap" tabindex="0" role="region" aria-label="Flow graph"><svg class="flow" width=${width} height=${height} viewBox="0 0 ${width} ${height}" role="img" aria-label=${label}>
    ${graph.edges.map((edge) => {
      const from = places[edge.from], to = places[edge.to];
      if (!from || !to) return null;
      const x1 = from.x + WIDTH, y1 = from.y + HEIGHT / 2, x2 = to.x, y2 = to.y + HEIGHT / 2, bend = Math.max(30, (x2 - x1) / 2);
      const rate = edge.rows_per_second;
      const near = degree(graph, "from", edge.from) > degree(graph, "to", edge.to) ? 0.8 : degree(graph, "to", edge.to) > 1 ? 0.2 : 0.5;  // where edges are apart
      return html`<g key=${edge.from + ">" + edge.to} class=${rate ? "edge active" : "edge"}><path d="M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}" style=${{ strokeWidth: 1.5 + 2.5 * Math.sqrt((rate ?? 0) / most) }} />
        ${rate ? html`<text x=${x1 + (x2 - x1) * near} y=${y1 + (y2 - y1) * smooth(near) - 5} text-anchor="middle">${format.rate(rate)}</text>` : ""}</g>`;
    })}
    ${graph.nodes.map((node) => {
      const at = places[node.id], flow = node.kind === "flow" ? flowOf[node.name] : null;
      const note = flow ? `${format.rate(flow.rows_per_second)} rows, lag ${format.compact(flow.lag)}` : KINDS[node.kind];
      const box = html`<g class="node" data-kind=${node.kind} transform="translate(${at.x} ${at.y})"><title>${node.name}</title><rect width=${WIDTH} height=${HEIGHT} rx="8" /><rect class="mark" width="4" height=${HEIGHT - 16} x="0" y="8" rx="2" />
        <text x="14" y="20" class="name">${short(node.name)}</text><text x="14" y="36" class="note">${note}</text></g>`;
      return node.kind === "topic" ? html`<a key=${node.id} href=${link(cluster, "topics", node.name)} aria-label=${`Topic ${node.name}`}>${box}</a>` : html`<g key=${node.id}>${box}</g>`;
    })}</svg></div>`;
}
const degree = (graph, end, id) => graph.edges.filter((edge) => edge[end] === id).length;
const smooth = (t) => t * t * (3 - 2 * t);  // about the height of the curve
const nameOf = (graph, id) => graph.nodes.find((node) => node.id === id)?.name ?? id;
const short = (name) => (name.length > 25 ? name.slice(0, 12) + "…" + name.slice(-12) : name);
