// One nsqd: how it is, its metrics over time, its topics.

import { session } from "../../lib/api.js";
import { age, count, name, plain, time as shownTime } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { navigate, paths, setQuery, useTitle } from "../../lib/route.js";
import { ActionButton } from "../../parts/actions.js";
import { Charts } from "../../parts/charts.js";
import { Badge, Failed, Gone, Loading, Paused } from "../../parts/state.js";
import { sorted, Table } from "../../parts/table.js";
import { Tiles } from "../../parts/tiles.js";
import { metricColumns } from "../shared/columns.js";
import { clientsTile, flowTiles } from "../shared/flow_tiles.js";
import { Metadata } from "../shared/metadata.js";
import { usePages } from "../shared/pages.js";
import { tombstone } from "../shared/questions.js";
import { orderOf, searchedFor, SearchField } from "../shared/rows.js";
import { NodeChannels, NodeClients } from "./node_clients.js";
import { Dismiss, isAway, isSilent, isUnwell, NodeState, since, uptimeS, Version, zoneText } from "./node_parts.js";
import { Role, RoleBadge } from "./standbys.js";
import { Store, StoreBadge } from "./store.js";

const CHARTED = [
  "depth", "in_flight", "deferred", "message_rate", "finish_rate", "requeue_rate", "timeout_rate", "latency",
];
const LAGS = ["lag", "lag_time"];
const SHOWN = [
  "depth", "backend_depth", "message_rate", "finish_rate", "in_flight", "requeue_rate", "timeout_rate", "messages",
  "clients", "channels",
];
const SORTABLE = ["topic", ...SHOWN];

/** @param {{params: {node: string}, query: Record<string, string>}} props */
export function NodeView({ params, query }) {
  const { node } = params;
  useTitle(node);
  const live = useLive("node", { node });
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href=${paths.nodes()}>Nodes</a></nav>
    <header class="title-row">
      <h1 tabindex="-1">${name(node)}</h1>
      ${live.time > 0 && live.state !== "gone" && html`<${NodeState} node=${live.head} />
        <${RoleBadge} node=${live.head} /> <${StoreBadge} node=${live.head} />`}
    </header>
    <${Contents} node=${node} live=${live} query=${query} />
  `;
}

function Contents({ node, live, query }) {
  const { head, rows, time, state, message } = live;
  if (state === "gone") return html`<${Gone} what="The nsqd" named=${node} />`;
  if (!time) return message ? html`<${Failed} message=${message} />` : html`<${Loading} />`;
  return html`
    <${LastKnown} head=${head} />
    <${Role} head=${head} />
    <${Store} head=${head} />
    ${!head.standby && html`<${NodeTiles} node=${node} head=${head} />`}
    <${Charts} source=${{ node }} live=${live} metrics=${metricsOf(head)} />
    ${!head.standby && html`
      <${Topics} node=${node} head=${head} rows=${rows} query=${query} />
      ${!isAway(head) && html`<${NodeChannels} node=${node} />`}
      ${!isSilent(head) && html`<${NodeClients} node=${node} />`}
    `}
    <${Tombstones} topics=${head.tombstones} />
    <${About} node=${head} timeS=${time} />
  `;
}

/** A standby has nothing but its lag. */
function metricsOf({ role, standby }) {
  if (standby) return LAGS;
  return role ? [...CHARTED, ...LAGS] : CHARTED;
}

/** Says of an nsqd that does not answer which time its metrics are of. */
function LastKnown({ head }) {
  if (!isSilent(head)) return null;
  const leave = () => navigate(paths.nodes(), { replace: true });
  const metrics = head.seen_s ? `The metrics on this page are those of ${since(head.seen_s)}, its last answer.`
    : "Its topics are not known: it has never answered this nsqadmin.";
  const kind = { slow: "warning", stopped: "" }[head.state] ?? "error";
  const what = { gone: "This nsqd is gone. ", stopped: "This nsqd was stopped. " }[head.state] ?? "This nsqd does not answer. ";
  return html`<div class="banner ${kind}" role="status">
    <p>${what}${metrics}</p>
    ${isAway(head) && html`<${Dismiss} node=${head.node} onDone=${leave} />`}
  </div>`;
}

function NodeTiles({ node, head }) {
  return html`<${Tiles} label="This nsqd" items=${[
    ...flowTiles(head),
    clientsTile(head, { of: "its channels" }),
  ]} />`;
}

// ---- its topics

function Topics({ node, head, rows, query }) {
  const columns = useMemo(() => columnsOf(node), [node]);
  const found = rows.filter((row) => searchedFor(query.search, row.topic));
  const { sort, order } = orderOf(query, SORTABLE, "topic");
  const { shown, pager } = usePages(sorted(found, sort, order), { what: "topics" });
  return html`
    <section class="section half" aria-labelledby="topics">
      <h2 id="topics">Topics</h2>
      <${SearchField} label="Search its topics" query=${query} found=${found.length} total=${rows.length} />
      <${Table}
        caption="Topics of this nsqd" captionHidden columns=${columns} rows=${shown}
        rowKey=${(row) => row.topic}
        sort=${sort} order=${order} onSort=${(key, way) => setQuery({ sort: key, order: way })}
        empty=${rows.length ? "No topic matches." : emptyText(head)}
      />
      ${pager}
    </section>
  `;
}

function emptyText(head) {
  return isSilent(head) ? "Its topics are not known." : "It has no topics.";
}

function columnsOf(node) {
  return [
    { key: "topic", title: "Topic", sortable: true, href: (row) => paths.topic(row.topic), cell: topicCell },
    ...metricColumns(SHOWN),
    { key: "tombstone", title: "Actions", saved: null, cell: ({ topic }) => html`<${Tombstone} topic=${topic} node=${node} />` },
  ];
}

function topicCell(row) {
  return html`${name(row.topic)} <${Paused} when=${row.paused} />`;
}

function Tombstone({ topic, node }) {
  return html`<${ActionButton}
    order=${{ action: "tombstone", topic, node }} label="Tombstone" kind="danger"
    confirm=${() => tombstone(topic, node)}
    title="Hide this nsqd from consumers of the topic, and delete the topic here"
  />`;
}

// ---- what else is known of it

function Tombstones({ topics }) {
  if (!topics.length) return null;
  return html`
    <section class="section" aria-labelledby="tombstones">
      <h2 id="tombstones">Tombstones</h2>
      <p>For now, nsqlookupds hide this nsqd from consumers of:</p>
      <ul class="names">
        ${topics.map((topic) => html`<li key=${topic}><a href=${paths.topic(topic)}>${name(topic)}</a></li>`)}
      </ul>
    </section>
  `;
}

function About({ node, timeS }) {
  const upS = isSilent(node) ? null : uptimeS(node, timeS);
  const metadata = [
    ["Host name", name(node.hostname || "unknown")],
    ["Broadcast address", name(node.broadcast_address || "unknown")],
    ["Ports", `${node.tcp_port} (TCP), ${node.http_port} (HTTP)`],
    ["Version", html`<${Version} node=${node} />`],
    ...(node.project_version ? [["nsqd-py", plain(node.project_version)]] : []),
    ["Zone, region", name(zoneText(node) || "none given")],
    ["Health", html`<${Health} node=${node} />`],
    ["Started", html`${shownTime(node.start_time)}${upS !== null && `, ${age(upS)} ago`}`],
    ["Answers in", isSilent(node) ? "does not answer" : `${count(node.took_ms)} ms`],
    ["nsqlookupds", name(lookupsText(node.lookups))],
  ];
  return html`
    <section class="section" aria-labelledby="metadata">
      <h2 id="metadata">About this nsqd</h2>
      <${Metadata} rows=${metadata} />
    </section>
  `;
}

function Health({ node }) {
  if (isSilent(node)) return html`<${Badge}>unknown<//>`;
  return html`<${Badge} kind=${isUnwell(node) ? "error" : "ok"}>${plain(node.health || "unknown")}<//>`;
}

function lookupsText(lookups) {
  // Each is the address of an nsqlookupd, and from which one it sees this nsqd come.
  if (lookups.length) return lookups.map((text) => text.replace("/", ", as ")).join("; ");
  return session().lookupds > 0 ? "it is registered with none" : "nsqadmin asks none";
}
