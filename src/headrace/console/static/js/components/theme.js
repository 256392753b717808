// The switch between the system's theme, light and dark.
import { html, useState } from "../lib/ui.js";
import { Button } from "./basics.js";
import { theme } from "./chart.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const GLYPH = { auto: "auto", light: "sun", dark: "moon" };
const TITLE = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };

export function ThemeButton() {
  const [chosen, setChosen] = useState(document.documentElement.dataset.theme ?? "auto");
  const turn = () => {
    const next = NEXT[chosen];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try { localStorage.setItem("headrace-theme", next); } catch { /* storage is blocked: the choice lasts for this page */ }
    setChosen(next);
    theme.set(({ version }) => ({ version: version + 1 }));
  };
  return html`<${Button} plain glyph=${GLYPH[chosen]} title=${TITLE[chosen]} onClick=${turn} />`;
}
