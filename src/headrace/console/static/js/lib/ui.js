// Preact, its hooks, and stores: values that components follow.
export { html, render, h, createContext, useState, useEffect, useLayoutEffect, useRef, useMemo, useCallback, useContext, useErrorBoundary }
  from "/static/vendor/htm-preact.js";
import { useLayoutEffect, useRef, useState } from "/static/vendor/htm-preact.js";

/** A value that components follow with useStore. `set` merges an object into it, or takes a function of the old value. */
export function createStore(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(change) {
      value = { ...value, ...(typeof change === "function" ? change(value) : change) };
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Renders again whenever `select(value)` changes. */
export function useStore(store, select = (value) => value) {
  const [, redraw] = useState({});
  const latest = useRef(null);
  latest.current = { select, selected: select(store.get()) };
  useLayoutEffect(() => {
    const check = () => {
      if (!Object.is(latest.current.select(store.get()), latest.current.selected)) redraw({});
    };
    check();
    return store.subscribe(check);
  }, [store]);
  return latest.current.selected;
}
