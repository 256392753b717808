// Requests to the JSON API: CSRF token, errors with the broker's message, and data that follows live updates.
import { createStore, useEffect, useRef, useState, useStore } from "./ui.js";
import { live } from "./live.js";
import { encode } from "./router.js";

/** The answer of GET /api/session; null before the first one. */
export const session = createStore({ session: null, error: null });

export class ApiError extends Error {
  constructor(status, code, message, field = null) {
    super(message);
    Object.assign(this, { status, code, field });
  }
}

export const base = (cluster, ...parts) => "/api/clusters/" + encode(cluster, ...parts);

export function queryText(query) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== null && each !== undefined && each !== "") parameters.append(name, each);
  const text = parameters.toString();
  return text && "?" + text;
}

async function send(method, path, { query, body, signal, headers } = {}) {
  const options = { method, signal, headers: { Accept: "application/json", ...headers }, credentials: "same-origin" };
  if (method !== "GET") options.headers["X-CSRF-Token"] = session.get().session?.csrf_token ?? "";
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    const more = queryText(query);
    response = await fetch(path + (path.includes("?") ? more.replace("?", "&") : more), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "The console does not answer. It may have stopped.");
  }
  if (response.status === 204) return null;
  let data = null;
  try { data = await response.json(); } catch { /* not JSON: the status says it */ }
  if (response.ok) return data;
  const problem = data?.error ?? {};
  throw new ApiError(response.status, problem.code ?? "HTTP_" + response.status, problem.message ?? `The console answered with status ${response.status}.`, problem.field);
}

export async function request(method, path, options) {
  try {
    return await send(method, path, options);
  } catch (error) {
    if (error.code === "CSRF") {  // the console was restarted, or another tab logged in
      await loadSession();
      return send(method, path, options);
    }
    if (error.code === "LOGIN_REQUIRED") await loadSession();
    throw error;
  }
}

export const get = (path, query, signal) => request("GET", path, { query, signal });
export const post = (path, body = {}) => request("POST", path, { body });
export const put = (path, body) => request("PUT", path, { body });
export const patch = (path, body) => request("PATCH", path, { body });
export const remove = (path, query, headers) => request("DELETE", path, { query, headers });

export async function loadSession() {
  try {
    session.set({ session: await send("GET", "/api/session"), error: null });
  } catch (error) {
    session.set({ error });
  }
}

/** Errors that live updates do not change: invalid, not allowed, not supported. */
const FINAL = new Set([400, 403, 501]);

/**
 * Data of a GET: {data, error, loading, reload}. Loads again when path or query change, and at live updates unless
 * `follow` is false. A reload keeps the old data until the new arrive. `path` null loads nothing. `late` returns more query
 * parameters for each load; a change of `asked` loads again.
 */
export function useData(path, query = {}, { follow = true, late, asked: wanted = 0 } = {}) {
  const key = path && path + queryText(query);
  const [state, setState] = useState({ key: null, data: null, error: null });
  const ticks = useStore(live, (value) => value.ticks);
  const [reloads, setReloads] = useState(0);
  const asked = `${reloads} ${wanted}`;
  const running = useRef(null);
  useEffect(() => {
    if (!key) return undefined;
    if (state.key === key && FINAL.has(state.error?.status) && state.asked === asked) return undefined;
    if (running.current?.key === key && running.current.asked === asked) return undefined;  // slower than live updates: no queue
    running.current?.controller.abort();
    const controller = new AbortController();
    const mine = (running.current = { key, asked, controller });
    get(key, late?.(), controller.signal).then(
      (data) => mine === running.current && setState({ key, asked, data, error: null }),
      (error) => error.name !== "AbortError" && mine === running.current && setState((old) => ({ key, asked, data: old.key === key ? old.data : null, error })),
    ).finally(() => { if (mine === running.current) running.current = null; });
    return undefined;
  }, [key, asked, follow ? ticks : 0]);
  useEffect(() => () => { running.current?.controller.abort(); running.current = null; }, []);
  const current = state.key === key;
  return {
    data: current ? state.data : null,
    last: state.data,
    error: current ? state.error : null,
    loading: !!key && !current,
    reload: () => setReloads((value) => value + 1),
  };
}
