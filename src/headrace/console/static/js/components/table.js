// Tables: sortable columns, rows drawn only where they are visible, pages of long lists.
import { html, useLayoutEffect, useRef, useState } from "../lib/ui.js";
import { number } from "../lib/format.js";
import { Button, Empty } from "./basics.js";

const VIRTUAL = 120;  // more rows than this are drawn only where visible
const ROW = 34;

/**
 * columns: [{id, title, cell(row), number, low, sort, wrap}]. `low`: hidden on phones. `sort`: true, or a function of
 * the row where the table itself sorts. With `onSort` somebody else sorts: `sorted` is {by, order}.
 */
export function Table({ columns, rows, label, keyOf, sorted, onSort, empty = "Nothing to show", rowClass, tall, initial }) {
  const [own, setOwn] = useState(initial ?? { by: null, order: "asc" });
  const order = onSort ? sorted : own;
  const shown = onSort || !own.by ? rows : sortRows(rows, columns.find((column) => column.id === own.by), own.order);
  const virtual = shown.length > VIRTUAL;
  const wrap = useRef(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(700);
  useLayoutEffect(() => {
    if (!virtual) return undefined;
    const observer = new ResizeObserver(() => wrap.current && setHeight(wrap.current.clientHeight));
    observer.observe(wrap.current);
    return () => observer.disconnect();
  }, [virtual]);
  if (!rows.length) return typeof empty === "string" ? html`<${Empty} title=${empty} />` : empty;
  const first = virtual ? Math.max(0, Math.min(Math.floor(top / ROW) - 10, shown.length - 1)) : 0;
  const last = virtual ? Math.min(shown.length, first + Math.ceil(height / ROW) + 20) : shown.length;
  const choose = (column) => {
    const turned = order?.by === column.id ? (order.order === "asc" ? "desc" : "asc") : column.number ? "desc" : "asc";
    (onSort ?? setOwn)({ by: column.id, order: turned });
  };
  return html`<div class="table-wrap ${virtual || tall ? "tall" : ""}" ref=${wrap} tabindex=${virtual ? 0 : undefined} role=${virtual ? "region" : undefined} aria-label=${virtual ? label : undefined}
      onScroll=${virtual ? (event) => setTop(event.currentTarget.scrollTop) : undefined} style=${virtual ? { maxHeight: "max(300px, calc(100vh - 232px))" } : undefined}>
    <table class="grid" aria-label=${label} aria-rowcount=${virtual ? shown.length + 1 : undefined}>
      <thead><tr>${columns.map((column) => html`<th scope="col" key=${column.id} class=${classesOf(column)}
        aria-sort=${order?.by === column.id ? (order.order === "asc" ? "ascending" : "descending") : undefined}>
        ${column.sort ? html`<button type="button" onClick=${() => choose(column)}>${column.title}<span aria-hidden="true">${order?.by === column.id ? (order.order === "asc" ? "↑" : "↓") : ""}</span></button>` : column.title}</th>`)}</tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="spacer" aria-hidden="true" key="above"><td colspan=${columns.length} style=${{ height: first * ROW + "px" }}></td></tr>`}
        ${shown.slice(first, last).map((row, index) => html`<tr key=${keyOf ? keyOf(row) : first + index} class=${rowClass?.(row)} aria-rowindex=${virtual ? first + index + 2 : undefined}>
          ${columns.map((column) => html`<td key=${column.id} class=${classesOf(column)}>${column.cell(row)}</td>`)}</tr>`)}
        ${last < shown.length && html`<tr class="spacer" aria-hidden="true" key="below"><td colspan=${columns.length} style=${{ height: (shown.length - last) * ROW + "px" }}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}

const classesOf = (column) => [column.number && "number", column.low && "low", column.wrap && "wrap", column.tight && "tight"].filter(Boolean).join(" ");

function sortRows(rows, column, order) {
  if (!column) return rows;
  const value = typeof column.sort === "function" ? column.sort : (row) => row[column.id];
  const sign = order === "asc" ? 1 : -1;
  return [...rows].sort((one, other) => {
    const a = value(one), b = value(other);
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return (a < b ? -1 : 1) * sign;
  });
}

/** Pages of a list on the server. */
export function Pager({ page, perPage, total, onPage }) {
  const pages = Math.max(1, Math.ceil(total / perPage));
  if (pages === 1) return null;
  const from = (page - 1) * perPage + 1;
  return html`<nav class="row" aria-label="Pages" style=${{ padding: "8px 14px", borderTop: "1px solid var(--line)" }}>
    <span class="muted small">${number(from)}–${number(Math.min(total, page * perPage))} of ${number(total)}</span><span class="grow"></span>
    <${Button} small glyph="left" title="Previous page" disabled=${page <= 1} onClick=${() => onPage(page - 1)} />
    <span class="small nowrap">Page ${number(page)} of ${number(pages)}</span>
    <${Button} small glyph="right" title="Next page" disabled=${page >= pages} onClick=${() => onPage(page + 1)} />
  </nav>`;
}
