// Small parts of every page: glyphs, buttons, badges, cards, fields, tabs, states of loading.
import { html, useEffect, useRef, useState } from "../lib/ui.js";

const GLYPHS = {
  overview: "M3 13a9 9 0 1 1 18 0M12 13l4-4M5.500 18h13",
  topics: "M4 6h16M4 12h16M4 18h10",
  records: "M5 4h10l4 4v12H5zM14 4v5h5M8.500 13h7M8.500 16.500h5",
  groups: "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM2.500 20c.5-4 3-6 6.500-6s6 2 6.500 6M16 4.500a3.500 3.500 0 0 1 0 6.500M18 14.500c2 .8 3.200 2.600 3.500 5.500",
  brokers: "M4 4h16v6H4zM4 14h16v6H4zM7.500 7h.01M7.500 17h.01",
  access: "M12 3l7 3v5.500c0 4.500-3 8-7 9.500-4-1.500-7-5-7-9.500V6zM9.500 12l2 2 3.500-4",
  transactions: "M4 8h14l-3.500-3.500M20 16H6l3.500 3.500",
  pipelines: "M4 7a2 2 0 1 0 4 0 2 2 0 0 0-4 0zM16 6a2 2 0 1 0 4 0 2 2 0 0 0-4 0zM16 18a2 2 0 1 0 4 0 2 2 0 0 0-4 0zM8 7h3c3 0 2-1 5-1M8 7c4 0 3 11 8 11",
  alerts: "M6 16V11a6 6 0 1 1 12 0v5l1.500 2h-15zM10 21h4",
  menu: "M4 7h16M4 12h16M4 17h16",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4.900 4.900l1.400 1.400M17.700 17.700l1.400 1.400M2 12h2M20 12h2M4.900 19.100l1.400-1.400M17.700 6.300l1.400-1.400",
  moon: "M20 14.500A8.500 8.500 0 1 1 9.500 4a7 7 0 0 0 10.500 10.500z",
  auto: "M12 3a9 9 0 1 0 0 18zM12 3a9 9 0 0 1 0 18",
  help: "M9 9a3 3 0 1 1 4.500 2.600c-1 .6-1.500 1.200-1.500 2.400M12 17.500h.01M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  close: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  edit: "M4 20h4L19 9l-4-4L4 16z",
  download: "M12 4v11M7.500 11l4.500 4.500 4.500-4.500M5 20h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  play: "M8 5l11 7-11 7z",
  stop: "M6 6h12v12H6z",
  reset: "M4 12a8 8 0 1 0 3-6.200M4 4v5h5",
  up: "M12 19V6M6 11l6-6 6 6",
  down: "M12 5v13M6 13l6 6 6-6",
  chevron: "M6 10l6 6 6-6",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l4 4",
  send: "M4 12l16-8-6 16-3-7z",
  logout: "M10 4H5v16h5M15 8l4 4-4 4M19 12H10",
  check: "M5 12.500l4.500 4.500L19 7.500",
  warn: "M12 4l9 16H3zM12 10v4.500M12 17.500h.01",
  lock: "M6 11h12v9H6zM8.500 11V8a3.500 3.500 0 0 1 7 0v3",
};

export const Glyph = ({ name, size = 16 }) => html`<svg class="glyph" viewBox="0 0 24 24" aria-hidden="true" width=${size} height=${size}><path d=${GLYPHS[name]} /></svg>`;

/** A button. `denied`: why it is disabled, shown as tooltip. A button without text needs a title. */
export function Button({ glyph, children, tone, primary, plain, small, denied, title, class: extra = "", type = "button", ...rest }) {
  const classes = ["button", primary && "primary", plain && "plain", small && "small", tone, !children && "icon", extra].filter(Boolean).join(" ");
  return html`<button type=${type} class=${classes} title=${denied || title} aria-label=${children ? undefined : title} ...${rest} disabled=${rest.disabled || !!denied}>
    ${glyph && html`<${Glyph} name=${glyph} />`}${children}</button>`;
}

export const Badge = ({ tone, title, children }) => html`<span class="badge" data-tone=${tone} title=${title}>${children}</span>`;

export const Card = ({ title, actions, children, flush, class: extra = "", ...rest }) => html`<section class="card ${extra}" ...${rest}>
  ${(title || actions) && html`<header><h2>${title}</h2><span class="grow"></span>${actions}</header>`}
  ${flush ? children : html`<div class="body">${children}</div>`}
</section>`;

export const Stat = ({ name, value, note, tone, href }) => html`<${href ? "a" : "div"} class="stat" data-tone=${tone} href=${href}>
  <div class="name">${name}</div><div class="value" title=${value}>${value}</div><div class="note" title=${note}>${note ?? " "}</div><//>`;

let ids = 0;
export const useId = () => useState(() => "f" + ++ids)[0];

/** A labelled input, select or textarea. `children` are a select's options. `onValue` gets the text, or true/false of a checkbox. */
export function Field({ label, hint, kind = "input", onValue, value, children, error, quiet, ...rest }) {
  const id = useId();
  const checkbox = rest.type === "checkbox";
  const on = (event) => onValue?.(checkbox ? event.target.checked : event.target.value);
  const shared = { id, "aria-describedby": hint || error ? id + "h" : undefined, "aria-invalid": error ? "true" : undefined, ...rest };
  const control = checkbox ? html`<input ...${shared} checked=${value} onChange=${on} />`
    : kind === "select" ? html`<select ...${shared} value=${value} onChange=${on}>${children}</select>`
    : kind === "textarea" ? html`<textarea ...${shared} value=${value} onInput=${on}></textarea>`
    : html`<input ...${shared} value=${value} onInput=${on} />`;
  return html`<div class="field ${checkbox ? "line" : ""}"><label class="label ${quiet ? "sr" : ""}" for=${id}>${label}</label>${control}
    ${(error || hint) && html`<span class="hint ${error ? "bad" : ""}" id=${id + "h"}>${error || hint}</span>`}</div>`;
}

/** A search box that reports its text after a pause. The shortcut "/" focuses it. */
export function Search({ value, onSearch, label = "Search", delay = 200 }) {
  const [text, setText] = useState(value ?? "");
  const timer = useRef(null);
  useEffect(() => { if (!timer.current) setText(value ?? ""); }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const on = (event) => {
    const next = event.target.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => { timer.current = null; onSearch(next.trim()); }, delay);
  };
  return html`<input type="search" data-search aria-label=${label} placeholder="${label}  ( / )" value=${text} onInput=${on} autocomplete="off" spellcheck="false" />`;
}

/** Tabs: [{id, title}]. Arrow keys move between them. */
export function Tabs({ tabs, chosen, onChoose, label }) {
  const keys = (event) => {
    const index = tabs.findIndex((tab) => tab.id === chosen);
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + tabs.length) % tabs.length;
    onChoose(tabs[next].id);
    event.currentTarget.children[next].focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${keys}>${tabs.map((tab) => html`
    <button role="tab" id=${"tab-" + tab.id} aria-selected=${tab.id === chosen ? "true" : "false"} aria-controls="tab-panel" tabindex=${tab.id === chosen ? 0 : -1} onClick=${() => onChoose(tab.id)}>${tab.title}</button>`)}</div>`;
}
export const TabPanel = ({ id, children }) => html`<div role="tabpanel" id="tab-panel" aria-labelledby=${"tab-" + id}>${children}</div>`;

export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong>${children}</div>`;
export const Problem = ({ error }) => html`<div class="callout" data-tone="bad" role="alert">${error.message}</div>`;
export const Loading = ({ rows = 4 }) => html`<div class="card" aria-busy="true"><div class="body stack"><span class="sr">Loading</span>
  ${Array.from({ length: rows }, (_, index) => html`<div class="skeleton" style=${{ width: `${90 - index * 13}%` }}></div>`)}</div></div>`;

/** Shows an error, a skeleton, or the content; an error next to old data is shown above them. */
export function Loaded({ from, children }) {
  if (from.data === null && from.error) return html`<${Problem} error=${from.error} />`;
  if (from.data === null) return html`<${Loading} />`;
  return html`${from.error && html`<${Problem} error=${from.error} />`}${children(from.data)}`;
}

export const PageHead = ({ title, crumb, sub, children }) => {
  useEffect(() => { document.title = `${typeof title === "string" ? title : "Console"} · Headrace`; }, [title]);
  return html`<div class="page-head">${crumb && html`<span class="crumb"><a href=${crumb.href}>${crumb.title}</a> /</span>`}<h1>${title}</h1><span class="grow"></span>${children}${sub && html`<div class="sub">${sub}</div>`}</div>`;
};

export const Meter = ({ value, tone }) => html`<span class="meter" aria-hidden="true"><i style=${{ width: Math.min(100, Math.max(0, value * 100)) + "%", background: tone && `var(--${tone})` }}></i></span>`;
export const Progress = ({ value, label }) => html`<div class="progress" role="progressbar" aria-label=${label} aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(value * 100)}><i style=${{ width: value * 100 + "%" }}></i></div>`;
