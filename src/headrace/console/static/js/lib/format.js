// Numbers, sizes, rates, times and durations as text.
const whole = new Intl.NumberFormat("en");
const UNKNOWN = "–";

export const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export function number(value) {
  return isKnown(value) ? whole.format(Math.round(value)) : UNKNOWN;
}

/** 1234567 → 1.23M; small numbers stay whole, fractions keep two digits. */
export function compact(value) {
  if (!isKnown(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size < 10000) return Number.isInteger(value) ? whole.format(value) : String(+value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0));
  const [unit, divisor] = size < 1e6 ? ["k", 1e3] : size < 1e9 ? ["M", 1e6] : size < 1e12 ? ["B", 1e9] : ["T", 1e12];
  const scaled = value / divisor;
  return scaled.toFixed(Math.abs(scaled) < 10 ? 2 : Math.abs(scaled) < 100 ? 1 : 0) + unit;
}

export function bytes(value) {
  if (!isKnown(value)) return UNKNOWN;
  const units = ["B", "KB", "MB", "GB", "TB", "PB"];
  let scaled = value, unit = 0;
  while (Math.abs(scaled) >= 1000 && unit < units.length - 1) { scaled /= 1000; unit++; }
  return (unit === 0 ? Math.round(scaled) : scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0)) + " " + units[unit];
}

export const rate = (value) => (isKnown(value) ? compact(value) + "/s" : UNKNOWN);
export const byteRate = (value) => (isKnown(value) ? bytes(value) + "/s" : UNKNOWN);
export const percent = (value) => (isKnown(value) ? (value * 100).toFixed(value < 0.1 ? 1 : 0) + "%" : UNKNOWN);

/** Seconds → 850 ms, 4.2 s, 3 min 20 s, 5 h 12 min, 2 d 3 h. */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  if (seconds < 0) return "-" + duration(-seconds);
  if (seconds === 0) return "0 s";
  if (seconds < 1) return Math.max(1, Math.round(seconds * 1000)) + " ms";
  if (seconds < 60) return +seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  const parts = seconds < 3600 ? [[60, "min"], [1, "s"]] : seconds < 86400 ? [[3600, "h"], [60, "min"]] : [[86400, "d"], [3600, "h"]];
  const first = Math.floor(seconds / parts[0][0]);
  const second = Math.floor((seconds % parts[0][0]) / parts[1][0]);
  return `${first} ${parts[0][1]}` + (second ? ` ${second} ${parts[1][1]}` : "");
}

export const milliseconds = (value) => (isKnown(value) ? duration(value / 1000) : UNKNOWN);

const pad = (value, digits = 2) => String(value).padStart(digits, "0");

/** Local time with milliseconds: 2026-05-04 13:05:59.120. */
export function time(ms, withMs = true) {
  if (!isKnown(ms) || ms < 0) return UNKNOWN;
  const at = new Date(ms);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  return `${day} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}` + (withMs ? "." + pad(at.getMilliseconds(), 3) : "");
}

export function ago(ms, now = Date.now()) {
  if (!isKnown(ms)) return UNKNOWN;
  const seconds = (now - ms) / 1000;
  return seconds < 1.5 ? "now" : duration(Math.floor(seconds)) + " ago";
}

/** Local time of an <input type=datetime-local> → epoch milliseconds. */
export const parseTime = (text) => (text ? new Date(text).getTime() : null);
export const inputTime = (ms) => { const text = time(ms, false); return text === UNKNOWN ? "" : text.replace(" ", "T"); };
export const plural = (count, word, many = word + "s") => `${number(count)} ${count === 1 ? word : many}`;
/** [0,1,2,5] → 0-2, 5 */
export function ranges(values) {
  const sorted = [...values].sort((a, b) => a - b), parts = [];
  for (let i = 0; i < sorted.length; i++) {
    let last = i;
    while (sorted[last + 1] === sorted[last] + 1) last++;
    parts.push(last > i ? `${sorted[i]}-${sorted[last]}` : String(sorted[i]));
    i = last;
  }
  return parts.join(", ");
}
