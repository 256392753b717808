// Paths in the address bar ↔ pages. Search, sort and page numbers are query parameters, so that links show the same view.
import { createStore, useStore } from "./ui.js";

const read = () => ({ path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search)) });
export const route = createStore(read());

export const segments = (path) => path.split("/").filter(Boolean).map(decodeURIComponent);
export const encode = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");
/** The path of a page of a cluster: link("prod", "topics", "orders") */
export const link = (cluster, ...parts) => "/clusters/" + encode(cluster, ...parts);

export function navigate(path, { replace = false, query = null } = {}) {
  const text = query ? "?" + new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value != null)) : "";
  const url = path + (text === "?" ? "" : text);
  if (url === location.pathname + location.search) return;
  const moved = path.split("?")[0] !== location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", url);
  route.set(read());
  if (moved && !replace) {
    scrollTo(0, 0);
    document.querySelector("main")?.focus({ preventScroll: true });
  }
}

/** Query parameters of the page, and a function that changes some of them without a new history entry. */
export function useQuery() {
  const query = useStore(route, (value) => value.query);
  return [query, (change) => navigate(location.pathname, { replace: true, query: { ...route.get().query, ...change } })];
}

addEventListener("popstate", () => route.set(read()));
document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href^='/']");
  if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || anchor.target || anchor.hasAttribute("download")) return;
  const url = new URL(anchor.href);
  if (url.pathname.startsWith("/api/") || url.pathname.startsWith("/static/")) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
});
