// Keyboard shortcuts: "g" and a letter opens a page, "/" goes to the search box, "?" shows this list.
import { html } from "./lib/ui.js";
import { link, navigate } from "./lib/router.js";
import { hasDialog, showDialog } from "./components/dialogs.js";

const LETTERS = { o: "overview", t: "topics", r: "records", g: "groups", b: "brokers", a: "access", x: "transactions", p: "pipelines", l: "alerts" };

export function showHelp() {
  const rows = [["?", "Show this help"], ["/", "Go to the search box"], ["Esc", "Close a dialog"], ...Object.entries(LETTERS).map(([letter, page]) => ["g " + letter, `Open ${page}`])];
  showDialog("Keyboard shortcuts", () => html`<div class="content"><table class="grid" aria-label="Keyboard shortcuts"><tbody>${rows.map(([keys, text]) => html`<tr key=${keys}>
    <td style=${{ width: "90px" }}>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</td><td>${text}</td></tr>`)}</tbody></table></div>`);
}

export function installShortcuts(cluster) {
  let pressed = 0;
  const on = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select") || hasDialog()) return;
    if (event.key === "?") { event.preventDefault(); showHelp(); return; }
    if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
      return;
    }
    const after = event.timeStamp - pressed < 1500;
    pressed = 0;
    if (after && LETTERS[event.key] && cluster) { event.preventDefault(); navigate(link(cluster, LETTERS[event.key])); }
    else if (event.key === "g") pressed = event.timeStamp;
  };
  document.addEventListener("keydown", on);
  return () => document.removeEventListener("keydown", on);
}
