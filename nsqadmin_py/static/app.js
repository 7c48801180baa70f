// The page: who uses it, its header, and the view that its address means.

import { explain, session } from "./lib/api.js";
import { useArrival } from "./lib/arrival.js";
import { plain } from "./lib/format.js";
import { Component, html, render, useEffect, useState } from "./lib/html.js";
import { knownKeys, useKeys } from "./lib/keys.js";
import { startWatching, useConnection, useLive } from "./lib/live.js";
import { navigate, paths, startRouting, useRoute } from "./lib/route.js";
import { nextTheme, startTheme, useChosenTheme } from "./lib/theme.js";
import { Dialog, Dialogs } from "./parts/dialog.js";
import { Notices, closeLast } from "./parts/notices.js";
import { Failed, LiveBadge, Loading } from "./parts/state.js";

// By the names of lib/route.js. Loaded when they are opened, so that one that is broken breaks nothing else.
const VIEWS = {
  topics: async () => (await import("./views/cluster/topics.js")).TopicsView,
  topic: async () => (await import("./views/topic/topic.js")).TopicView,
  channels: async () => (await import("./views/cluster/channels.js")).ChannelsView,
  channel: async () => (await import("./views/channel/channel.js")).ChannelView,
  messages: async () => (await import("./views/messages/messages.js")).MessagesView,
  log: async () => (await import("./views/topic/log.js")).LogView,
  dead_letters: async () => (await import("./views/messages/dead_letters.js")).DeadLettersView,
  nodes: async () => (await import("./views/node/nodes.js")).NodesView,
  node: async () => (await import("./views/node/node.js")).NodeView,
  lookup: async () => (await import("./views/cluster/lookup.js")).LookupView,
  counter: async () => (await import("./views/cluster/counter.js")).CounterView,
  audit: async () => (await import("./views/cluster/audit.js")).AuditView,
  nowhere: async () => Nowhere,
};

// Of the header: where to, its name, its keys, and the views that belong to it.
const PAGES = [
  [paths.topics, "Topics", "g t", ["topics", "topic", "channel", "messages", "log", "dead_letters"]],
  [paths.channels, "Channels", "g h", ["channels"]],
  [paths.nodes, "Nodes", "g n", ["nodes", "node"]],
  [paths.lookup, "Lookup", "g l", ["lookup"]],
  [paths.counter, "Counter", "g c", ["counter"]],
  [paths.audit, "Audit", "g a", ["audit"]],
];

const DOCS = "https://nsq.io/overview/design.html";

function Nowhere() {
  return html`<div class="panel empty"><h1>Not found</h1>
    <p>There is no view of nsqadmin at this address. <a href=${paths.topics()}>All topics</a></p></div>`;
}

// ---- the view

/** A view that fails takes nothing with it. */
class Fence extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    if (!error) return children;
    const again = () => this.setState({ error: null });
    return html`<${Failed} message=${`This view has failed: ${explain(error)}`} retry=${again} />`;
  }
}

/** @param {{name: string, params: Record<string, string>, query: Record<string, string>}} route */
function View({ name, params, query }) {
  const [loaded, setLoaded] = useState({ name: "", view: null, error: null });
  const load = () => {
    VIEWS[name]().then((view) => setLoaded({ name, view, error: null }),
      (error) => setLoaded({ name, view: null, error }));
  };
  useEffect(load, [name]);
  if (loaded.name !== name) return html`<${Loading} />`;
  if (loaded.error) return html`<${Failed} message="This view cannot be loaded." retry=${load} />`;
  return html`<${loaded.view} params=${params} query=${query} />`;
}

// ---- the header

const NODE_STATES = [["nodes_ok", "ok", "✓", "ok"], ["nodes_slow", "warning", "…", "slow"],
  ["nodes_failed", "error", "✕", "failed"], ["nodes_gone", "error", "✕", "gone"]];

/** How the nsqds are, in one line. */
function ClusterState() {
  const { head, time } = useLive("overview");
  if (!time) return null;
  const shown = NODE_STATES.filter(([key]) => head[key] > 0);
  const failedLookups = Object.keys(head.failed_lookups ?? {}).length;
  return html`<a class="cluster-state" href=${paths.nodes()} title="State of the nsqds">
    <span class="cluster-word">nsqd</span>
    ${shown.map(([key, kind, sign, word]) => html`<span key=${key} class="state ${kind}">
      <span aria-hidden="true">${sign}</span> ${head[key]}<span class="state-word"> ${word}</span></span>`)}
    ${!shown.length && html`<span class="state muted">none</span>`}
    ${failedLookups > 0 && html`<span class="state error">
      <span aria-hidden="true">✕</span> ${failedLookups} nsqlookupd</span>`}
  </a>`;
}

const THEME_SIGNS = { auto: "◐", light: "☀", dark: "☾" };

function ThemeButton() {
  const theme = useChosenTheme();
  return html`<button type="button" class="icon-button" onClick=${nextTheme} title="Theme: ${theme} (t)"
    aria-label="Theme: ${theme}"><span aria-hidden="true">${THEME_SIGNS[theme]}</span></button>`;
}

/** In the header; on a phone, which has no room there, in the footer. */
function Account() {
  const { user, read_only: isReadOnly } = session();
  return html`<span class="account">
    ${isReadOnly && html`<span class="badge muted">read only</span>`}
    ${user && html`<span class="user" title="Logged in as ${plain(user)}"><bdi>${plain(user)}</bdi></span>`}
    <${ThemeButton} />
  </span>`;
}

/** @param {{name: string, onHelp: () => void}} props */
function Header({ name, onHelp }) {
  const connection = useConnection();
  return html`<header class="header">
    <a class="brand" href=${paths.topics()} aria-label="nsqadmin"><span class="brand-mark" aria-hidden="true"></span><span class="brand-name">nsqadmin</span></a>
    <nav class="nav" aria-label="Views">
      ${PAGES.map(([path, text, keys, names]) => html`<a key=${text} href=${path()} title=${`${text} (${keys})`}
        aria-current=${names.includes(name) ? "page" : undefined}>${text}</a>`)}
    </nav>
    <div class="header-end">
      <${ClusterState} />
      <span class="live-region" aria-live="polite"><${LiveBadge} ...${connection} /></span>
      <${Account} />
      <button type="button" class="icon-button help-button" onClick=${onHelp} title="Keys (?)" aria-label="Keys"><kbd>?</kbd>
      </button>
    </div>
  </header>`;
}

function Help({ onClose }) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <div class="dialog-body"><dl class="keys">
      ${knownKeys().map(({ keys, text }) => html`<div key=${keys}>
        <dt>${keys.split(" ").map((key) => html`<kbd key=${key}>${key}</kbd>`)}</dt><dd>${text}</dd></div>`)}
      <div><dt><kbd>Enter</kbd></dt><dd>Open the row</dd></div>
      <div><dt><kbd>Esc</kbd></dt><dd>Close a dialog or a notice</dd></div>
    </dl></div>
  </${Dialog}>`;
}

/** Where the view has a field to search in. */
function focusSearch() {
  const field = document.querySelector('main input[type="search"]');
  if (field instanceof HTMLInputElement) {
    field.focus();
    field.select();
  } else {
    navigate(paths.topics());
  }
}

function Page() {
  const route = useRoute();
  const [isHelp, setHelp] = useState(false);
  useKeys({
    "/": { text: "Search", run: focusSearch },
    ...Object.fromEntries(PAGES.map(([path, text, keys]) => [keys, { text, run: () => navigate(path()) }])),
    t: { text: "Theme: auto, light, dark", run: nextTheme },
    "?": { text: "These keys", run: () => setHelp(true) },
    Escape: closeLast,
  });
  const address = `${route.name} ${route.path}`;
  useArrival(address);
  return html`
    <a class="skip-link" href="#main">Skip to the content</a>
    <${Header} name=${route.name} onHelp=${() => setHelp(true)} />
    <main id="main" tabindex="-1"><${Fence} key=${address}><${View} ...${route} /></${Fence}></main>
    <footer class="footer"><p>nsqadmin-py ${plain(session().project_version)} for NSQ ${plain(session().version)} · <a href=${DOCS} rel="noopener noreferrer"
      target="_blank">Documentation of NSQ</a></p><${Account} /></footer>
    <${Notices} />
    <${Dialogs} />
    ${isHelp && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

// ---- the beginning

startTheme();
startRouting();
startWatching();
render(html`<${Page} />`, document.querySelector("#page"));
