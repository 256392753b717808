// Dialogs, confirmations and toasts. One host of each is part of the shell.
import { createStore, html, useEffect, useRef, useState, useStore } from "../lib/ui.js";
import { Button, Field } from "./basics.js";

const open = createStore({ dialogs: [] });
const toasts = createStore({ toasts: [] });
let ids = 0;

/** Shows a dialog; `draw(close)` renders its content. */
export function showDialog(title, draw, { wide = false } = {}) {
  const id = ++ids;
  open.set(({ dialogs }) => ({ dialogs: [...dialogs, { id, title, draw, wide }] }));
}
const closeDialog = (id) => open.set(({ dialogs }) => ({ dialogs: dialogs.filter((each) => each.id !== id) }));
export const closeAllDialogs = () => open.set({ dialogs: [] });
export const hasDialog = () => open.get().dialogs.length > 0;

export function toast(text, tone = "good") {
  const id = ++ids;
  toasts.set((value) => ({ toasts: [...value.toasts.slice(-3), { id, text, tone }] }));
  if (tone !== "bad") setTimeout(() => closeToast(id), 6000);
}
const closeToast = (id) => toasts.set((value) => ({ toasts: value.toasts.filter((each) => each.id !== id) }));
export const failed = (error) => error.name !== "AbortError" && toast(error.message, "bad");

/** Runs an action, then says so; an error becomes a toast with the broker's message. Returns true if it worked. */
export async function run(action, done) {
  try {
    const result = await action();
    if (done) toast(typeof done === "function" ? done(result) : done);
    return true;
  } catch (error) {
    failed(error);
    return false;
  }
}

export function DialogHost() {
  const dialogs = useStore(open, (value) => value.dialogs);
  return dialogs.map((each) => html`<${Dialog} key=${each.id} ...${each} />`);
}

function Dialog({ id, title, draw, wide }) {
  const element = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.isConnected && before.focus();
  }, []);
  const close = () => closeDialog(id);
  return html`<dialog ref=${element} class=${wide ? "wide" : ""} aria-labelledby=${"dialog-" + id} onClose=${close} onCancel=${close}>
    <div class="frame"><header><h2 id=${"dialog-" + id}>${title}</h2><${Button} plain glyph="close" title="Close" onClick=${close} /></header>${draw(close)}</div></dialog>`;
}

/**
 * A form in a dialog. `submit` returns a promise; its error is shown in the form, with the name of the wrong field.
 * The dialog closes after success, unless submit returns false.
 */
export function DialogForm({ close, submit, label, tone, disabled, children, extra }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const on = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if ((await submit()) !== false) close();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<form onSubmit=${on}><div class="content">${children}${error && html`<div class="callout" data-tone="bad" role="alert">${error.message}</div>`}</div>
    <footer>${extra}<${Button} onClick=${close}>Cancel<//><${Button} type="submit" primary tone=${tone} disabled=${busy || disabled}>${label}<//></footer></form>`;
}

/** Asks before a destructive change: the name must be typed. */
export function confirmName({ title, text, name, label, action, done }) {
  showDialog(title, (close) => html`<${ConfirmName} ...${{ text, name, label, action, done, close }} />`);
}
function ConfirmName({ text, name, label, action, done, close }) {
  const [typed, setTyped] = useState("");
  const submit = async () => {
    await action();
    if (done) toast(done);
  };
  return html`<${DialogForm} close=${close} submit=${submit} label=${label} tone="danger" disabled=${typed !== name}>
    <div class="callout" data-tone="bad">${text}</div>
    <${Field} label=${html`Type <b class="mono">${name}</b> to confirm`} value=${typed} onValue=${setTyped} autofocus autocomplete="off" spellcheck="false" name="confirm" /><//>`;
}

export function ToastHost() {
  const list = useStore(toasts, (value) => value.toasts);
  return html`<div class="toasts" role="status" aria-live="polite">${list.map((each) => html`<div class="toast" key=${each.id} data-tone=${each.tone} role=${each.tone === "bad" ? "alert" : undefined}>
    <span>${each.text}</span><${Button} small plain glyph="close" title="Dismiss" onClick=${() => closeToast(each.id)} /></div>`)}</div>`;
}
