// Line charts over time with uPlot, in the theme's colors, with a legend that follows the cursor.
import { createStore, html, useEffect, useRef, useState, useStore } from "../lib/ui.js";
import { bytes, byteRate, compact, duration, rate, time } from "../lib/format.js";
import { base, useData } from "../lib/api.js";
import { Card } from "./basics.js";

export const UNITS = { "1/s": rate, "B/s": byteRate, records: compact, s: duration, B: bytes };
export const theme = createStore({ version: 0 });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme.set(({ version }) => ({ version: version + 1 })));

/** A theme color as the canvas understands it. */
function color(name, element) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  element.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

/** times in ms; series: [{name, title, unit, values}]. */
export function Chart({ times, series, height = 170, label }) {
  const element = useRef(null);
  const plot = useRef(null);
  const [at, setAt] = useState(null);
  const version = useStore(theme, (value) => value.version);
  const unit = UNITS[series[0]?.unit] ?? compact;
  const shape = series.map((each) => each.name).join() + unit.name + version;
  const data = [times.map((ms) => ms / 1000), ...series.map((each) => each.values)];
  useEffect(() => {
    const node = element.current;
    const line = color("line", node), muted = color("muted", node);
    const font = `11px ${getComputedStyle(node).fontFamily}`;
    const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { show: false }, font };
    const options = {
      width: Math.max(120, node.clientWidth), height, legend: { show: false }, padding: [8, 18, 0, 0],
      cursor: { y: false, points: { size: 6 } },
      scales: { x: { time: true }, y: { range: (_, low, high) => [0, Math.max(high ?? 1, 1e-9) * 1.12 || 1] } },
      axes: [
        { ...axis, size: 26, space: 70, grid: { show: false }, values: (_, ticks, __, ___, step) => ticks.map((tick) => time(tick * 1000, false).slice(11, step < 60 ? 19 : 16)) },
        { ...axis, size: 62, space: 34, values: (_, ticks) => ticks.map((tick) => unit(tick)) },
      ],
      series: [{}, ...series.map((_, index) => {
        const stroke = color(`series-${(index % 6) + 1}`, node);
        return { stroke, width: 1.6, spanGaps: false, points: { show: false }, fill: index ? undefined : stroke.replace("rgb(", "rgba(").replace(")", ", 0.09)") };
      })],
      hooks: { setCursor: [(drawn) => setAt(drawn.cursor.idx ?? null)] },
    };
    plot.current = new uPlot(options, data, node);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: Math.max(120, node.clientWidth), height }));
    observer.observe(node);
    return () => { observer.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [shape, height]);
  useEffect(() => { plot.current?.setData(data); }, [times, series]);
  const index = at !== null && at < times.length ? at : times.length - 1;
  return html`<div class="chart" role="img" aria-label=${label ?? summary(series)}>
    <div class="legend">${series.map((each, i) => html`<span key=${each.name}><i style=${{ background: `var(--series-${(i % 6) + 1})` }}></i>${each.title ?? each.name}<b>${(UNITS[each.unit] ?? compact)(lastKnown(each.values, index, at !== null))}</b></span>`)}
      ${at !== null && times[index] && html`<span>${time(times[index], false).slice(11)}</span>`}</div>
    <div class="plot" ref=${element}></div></div>`;
}

const lastKnown = (values, index, exact) => {
  while (!exact && index > 0 && values[index] === null) index--;
  return values[index];
};
const summary = (series) => series.map((each) => `${each.title ?? each.name}: ${(UNITS[each.unit] ?? compact)(lastKnown(each.values, each.values.length - 1))}`).join(", ");

export const RANGES = [["15 min", 15], ["1 h", 60], ["6 h", 360], ["24 h", 1440]];
export const Ranges = ({ minutes, onChoose }) => html`<span class="row" role="group" aria-label="Time range">${RANGES.map(([title, value]) =>
  html`<button type="button" class="button small" aria-pressed=${value === minutes ? "true" : "false"} onClick=${() => onChoose(value)}>${title}</button>`)}</span>`;

/** A card with series of the history that the console keeps. lines: {series name: title}. */
export function HistoryCard({ cluster, title, lines, height, actions, minutes = 60 }) {
  const late = () => ({ from_ms: Date.now() - minutes * 60000, to_ms: Date.now() });
  const history = useData(base(cluster, "history"), { series: Object.keys(lines), points: 300 }, { late, asked: minutes });
  return html`<${Card} title=${title} actions=${actions}>${drawn(history, lines, height)}<//>`;
}
function drawn(history, lines, height) {
  const data = history.data ?? history.last;
  if (!data) return html`<div style=${{ height: (height ?? 170) + 26 + "px" }} class="muted">${history.error?.message ?? ""}</div>`;
  const series = data.series.map((each) => ({ ...each, title: lines[each.name] ?? each.name }));
  if (!data.times_ms.length || series.every((each) => each.values.every((value) => value === null)))
    return html`<div class="empty small" style=${{ minHeight: (height ?? 170) + 26 + "px" }}>No data yet in this time range.</div>`;
  return html`<${Chart} times=${data.times_ms} series=${series} height=${height} />`;
}
