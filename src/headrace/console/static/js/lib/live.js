// Live updates of the chosen cluster over server-sent events, and the visible state of that connection.
import { createStore } from "./ui.js";

/**
 * state: connecting, live, lost. ticks counts collections: pages load again when it changes.
 * overview, status and alerts are the last events of the kind.
 */
export const live = createStore({ state: "connecting", ticks: 0, overview: null, status: null, alerts: null, expired: 0 });

let source = null;
let cluster = null;
let retry = null;
let attempts = 0;

/** Follows another cluster, or none (null). */
export function follow(name) {
  if (name === cluster) return;
  cluster = name;
  attempts = 0;
  live.set({ state: "connecting", overview: null, status: null, alerts: null });
  open();
}

function close() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function open() {
  close();
  if (cluster === null) return;
  const mine = (source = new EventSource(`/api/clusters/${encodeURIComponent(cluster)}/events`));
  const on = (name, handle) => mine.addEventListener(name, (event) => mine === source && handle(JSON.parse(event.data)));
  mine.onopen = () => {
    attempts = 0;
    live.set((old) => ({ state: "live", ticks: old.state === "lost" ? old.ticks + 1 : old.ticks }));
  };
  mine.onerror = () => {
    if (mine !== source) return;
    live.set({ state: "lost" });
    if (mine.readyState !== EventSource.CLOSED) return;  // else the browser tries again
    retry = setTimeout(open, Math.min(10000, 500 * 2 ** attempts++));
  };
  on("tick", (data) => live.set((old) => ({ overview: data.overview, ticks: old.ticks + 1 })));
  on("status", (data) => live.set((old) => ({ status: data, ticks: old.status && !old.status.reachable && data.reachable ? old.ticks + 1 : old.ticks })));
  on("alerts", (data) => live.set({ alerts: data }));
  on("session", () => {
    close();
    live.set((old) => ({ state: "lost", expired: old.expired + 1 }));
  });
}
