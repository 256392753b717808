// The entry: session, clusters, pages, keyboard shortcuts.
import { html, render, useEffect, useErrorBoundary, useState, useStore } from "./lib/ui.js";
import { base, get, loadSession, post, session } from "./lib/api.js";
import { follow, live } from "./lib/live.js";
import { link, navigate, route, segments } from "./lib/router.js";
import { Button, Empty, Glyph, Loading, PageHead } from "./components/basics.js";
import { DialogHost, ToastHost, run } from "./components/dialogs.js";
import { installShortcuts, showHelp } from "./shortcuts.js";
import { ThemeButton } from "./components/theme.js";
import { Login } from "./pages/login.js";
import { Overview } from "./pages/overview.js";
import { TopicList } from "./pages/topics.js";
import { Topic } from "./pages/topic.js";
import { RecordsStart } from "./pages/records.js";
import { GroupList } from "./pages/groups.js";
import { Group } from "./pages/group.js";
import { BrokerList } from "./pages/brokers.js";
import { Broker } from "./pages/broker.js";
import { Access } from "./pages/access.js";
import { Transactions } from "./pages/transactions.js";
import { PipelineList } from "./pages/pipelines.js";
import { Pipeline } from "./pages/pipeline.js";
import { Alerts } from "./pages/alerts.js";

/** Each page: its list, and the page of one item where there is one. */
const PAGES = [
  { id: "overview", title: "Overview", list: Overview },
  { id: "topics", title: "Topics", list: TopicList, item: Topic },
  { id: "records", title: "Records", list: RecordsStart },
  { id: "groups", title: "Groups", list: GroupList, item: Group },
  { id: "brokers", title: "Brokers", list: BrokerList, item: Broker },
  { id: "access", title: "Access", list: Access },
  { id: "transactions", title: "Transactions", list: Transactions },
  { id: "pipelines", title: "Pipelines", list: PipelineList, item: Pipeline },
  { id: "alerts", title: "Alerts", list: Alerts },
];

function App() {
  const { session: current, error } = useStore(session);
  const path = useStore(route, (value) => value.path);
  const expired = useStore(live, (value) => value.expired);
  useEffect(() => { loadSession(); }, [expired]);
  useEffect(() => {
    if (!error || current) return undefined;
    const timer = setTimeout(loadSession, 2000);
    return () => clearTimeout(timer);
  }, [error]);
  if (!current) return html`<main class="login">${error ? html`<${Empty} title="The console does not answer">${error.message} Trying again.<//>` : html`<${Loading} />`}</main>`;
  const [, name, page = "overview", item, tab] = segments(path);
  const cluster = current.clusters.find((each) => each.name === name) ?? (name ? null : current.clusters[0]);
  return html`<${Shell} session=${current} cluster=${cluster} name=${name} page=${page} item=${item} tab=${tab} />`;
}

function Shell({ session: current, cluster, name, page, item, tab }) {
  const needsLogin = cluster?.login === "required" && !cluster.user;
  useEffect(() => { follow(cluster && !needsLogin ? cluster.name : null); }, [cluster?.name, needsLogin]);
  const [menu, setMenu] = useState(false);
  const path = useStore(route, (value) => value.path);
  useEffect(() => setMenu(false), [path]);
  useEffect(() => installShortcuts(cluster?.name, PAGES), [cluster?.name]);
  if (needsLogin) return html`<${Login} cluster=${cluster} clusters=${current.clusters} /><${ToastHost} />`;
  const chosen = PAGES.find((each) => each.id === page);
  const Content = cluster && chosen && (item === undefined ? chosen.list : chosen.item);
  const skip = (event) => { event.preventDefault(); document.querySelector("main").focus(); };
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to content</a>
  <div class="shell">
    <button class="scrim ${menu ? "open" : ""}" aria-label="Close menu" onClick=${() => setMenu(false)}></button>
    <${Side} cluster=${cluster} page=${page} open=${menu} version=${current.version} />
    <div class="main-column">
      <header class="top">
        <${Button} class="menu-button" plain glyph="menu" title="Menu" aria-expanded=${menu ? "true" : "false"} onClick=${() => setMenu(!menu)} />
        <${ClusterSwitch} clusters=${current.clusters} cluster=${cluster} page=${chosen ? page : "overview"} />
        <span class="grow"></span>
        ${cluster && html`<${LiveState} />`}
        ${cluster && !cluster.writable && html`<span class="badge" title="Start the console with --write to allow changes on a cluster without logins"><${Glyph} name="lock" size="12" />Read-only</span>`}
        <${ThemeButton} />
        <${Button} plain glyph="help" title="Keyboard shortcuts ( ? )" class="wide" onClick=${showHelp} />
        ${cluster?.user && html`<${User} cluster=${cluster} />`}
      </header>
      ${cluster && html`<${Unreachable} />`}
      <main id="main" tabindex="-1">${Content ? html`<${Guard} key=${cluster.name + "/" + page + "/" + (item ?? "")}><${Content} cluster=${cluster.name} writable=${cluster.writable} item=${item} tab=${tab} /><//>`
        : html`<${PageHead} title="Not found" /><div class="card"><${Empty} title=${cluster ? "There is no such page" : `The console has no cluster '${name}'`}><a href="/">Go to the overview</a><//></div>`}</main>
    </div>
  </div><${DialogHost} /><${ToastHost} />`;
}

/** An error in a page's code must not take the navigation away. */
function Guard({ children }) {
  const [error, reset] = useErrorBoundary((problem) => console.error(problem));
  if (error) return html`<div class="card"><${Empty} title="This page failed"><p class="mono">${String(error.message)}</p><p><${Button} onClick=${reset}>Show it again<//></p><//></div>`;
  return children;
}

function Side({ cluster, page, open, version }) {
  const alerts = useStore(live, (value) => value.alerts);
  const overview = useStore(live, (value) => value.overview);
  const counts = { topics: overview?.topics, groups: overview?.groups, brokers: overview?.brokers };
  return html`<nav class="side ${open ? "open" : ""}" aria-label="Pages">
    <a class="brand" href="/"><img src="/static/icon.svg" alt="" />Headrace</a>
    <ul class="nav">${cluster && PAGES.map((each) => html`<li key=${each.id}><a href=${link(cluster.name, each.id)} aria-current=${each.id === page ? "page" : undefined}>
      <${Glyph} name=${each.id} size="18" />${each.title}
      ${each.id === "alerts" && alerts?.firing ? html`<span class="badge count" data-tone="bad">${alerts.firing}<span class="sr"> firing</span></span>`
        : counts[each.id] != null && html`<span class="count small">${counts[each.id].toLocaleString("en")}</span>`}</a></li>`)}</ul>
    <div class="foot"><a href="/api/openapi.json" target="_blank" rel="noopener">JSON API</a><span>Headrace ${version}</span></div>
  </nav>`;
}

function ClusterSwitch({ clusters, cluster, page }) {
  return html`<select aria-label="Cluster" value=${cluster?.name ?? ""} onChange=${(event) => navigate(link(event.target.value, page))}>
    ${!cluster && html`<option value="">Choose a cluster</option>`}
    ${clusters.map((each) => html`<option value=${each.name} key=${each.name}>${each.name}${each.reachable ? "" : " (unreachable)"}</option>`)}</select>`;
}

const LIVE_WORDS = { connecting: "Connecting", live: "Live", lost: "Reconnecting" };
function LiveState() {
  const state = useStore(live, (value) => value.state);
  return html`<span class="live" data-state=${state} role="status" title=${state === "lost" ? "The connection to the console is lost; it connects again by itself" : "Live updates"}><span class="words">${LIVE_WORDS[state]}</span></span>`;
}

function Unreachable() {
  const state = useStore(live, (value) => value.state);
  const status = useStore(live, (value) => value.status);
  if (state === "lost") return html`<div class="banner" role="alert">No connection to the console. The page shows the last known state and connects again by itself.</div>`;
  if (status && !status.reachable) return html`<div class="banner" role="alert">The cluster does not answer${status.error ? `: ${status.error.replace(/\.$/, "")}` : ""}. The page shows the last known state.</div>`;
  return null;
}

function User({ cluster }) {
  const out = () => run(async () => session.set({ session: await post("/api/logout", { cluster: cluster.name }) }));
  return html`<span class="small muted wide">${cluster.user.replace(/^User:/, "")}</span><${Button} plain glyph="logout" title=${`Log out ${cluster.user}`} onClick=${out} />`;
}

render(html`<${App} />`, document.getElementById("app"));
