// Login with SASL credentials of the cluster. The console then acts as that principal.
import { html, useState } from "../lib/ui.js";
import { post, session } from "../lib/api.js";
import { link, navigate } from "../lib/router.js";
import { Field } from "../components/basics.js";
import { ThemeButton } from "../components/theme.js";

export function Login({ cluster, clusters }) {
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [mechanism, setMechanism] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      session.set({ session: await post("/api/login", { cluster: cluster.name, username, password, mechanism: mechanism || null }) });
    } catch (problem) {
      setError(problem);
      setPassword("");
      setBusy(false);
    }
  };
  return html`<main class="login"><form onSubmit=${submit} aria-labelledby="login-title">
    <div class="row"><span class="brand"><img src="/static/icon.svg" alt="" />Headrace</span><span class="grow"></span><${ThemeButton} /></div>
    <h1 id="login-title" style=${{ fontSize: "16px" }}>Log in to the cluster ${clusters.length > 1 ? "" : html`<b>${cluster.name}</b>`}</h1>
    ${clusters.length > 1 && html`<${Field} kind="select" label="Cluster" value=${cluster.name} onValue=${(name) => navigate(link(name, "overview"))}>${clusters.map((each) => html`<option value=${each.name} key=${each.name}>${each.name}</option>`)}<//>`}
    <${Field} label="User" name="username" autocomplete="username" value=${username} onValue=${setUsername} required autofocus spellcheck="false" autocapitalize="none" />
    <${Field} label="Password" name="password" type="password" autocomplete="current-password" value=${password} onValue=${setPassword} required />
    ${(cluster.mechanisms ?? []).length > 1 && html`<${Field} kind="select" label="Mechanism" value=${mechanism} onValue=${setMechanism}><option value="">Choose automatically</option>${cluster.mechanisms.map((each) => html`<option value=${each} key=${each}>${each}</option>`)}<//>`}
    ${error && html`<div class="callout" data-tone="bad" role="alert">${error.message}</div>`}
    ${!cluster.reachable && !error && html`<div class="callout" data-tone="warn">The cluster does not answer${cluster.error ? `: ${cluster.error}` : "."}</div>`}
    <button class="button primary" type="submit" disabled=${busy}>${busy ? "Logging in" : "Log in"}</button>
    <p class="small muted">Use your SASL user of the cluster. Its rights decide what you see and change.</p>
  </form></main>`;
}
