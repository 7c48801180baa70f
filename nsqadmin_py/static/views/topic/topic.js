// A topic: its metrics and channels, and what can be done with it.

import { get } from "../../lib/api.js";
import { count, name } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { navigate, paths, setQuery, useTitle } from "../../lib/route.js";
import { ActionBar, ActionButton } from "../../parts/actions.js";
import { Charts } from "../../parts/charts.js";
import { Save } from "../../parts/save.js";
import { Failed, Loading } from "../../parts/state.js";
import { Table, sorted } from "../../parts/table.js";
import { Tiles } from "../../parts/tiles.js";
import { SeekButton } from "../channel/seek.js";
import { ChannelBadges, TopicBadges, isDead, isKnown, problemsColumn } from "../shared/badges.js";
import { AGE_COLUMNS, metricColumns } from "../shared/columns.js";
import { depthColumn, useDepthLines } from "../shared/depth_lines.js";
import { ageTile, clientsTile, flowTiles } from "../shared/flow_tiles.js";
import { LatencyTable } from "../shared/latency.js";
import { NodeTable } from "../shared/node_table.js";
import { usePages } from "../shared/pages.js";
import { usePolled } from "../shared/polling.js";
import { deleteTopic, emptyTopic, pauseTopic, tombstone } from "../shared/questions.js";
import { SearchField, orderOf, searchedFor, sortedByHarm } from "../shared/rows.js";
import { CreateChannel } from "./create.js";
import { MissingTopic } from "./missing.js";
import { PublishDialog } from "./publish.js";
import { TopicTabs } from "./topic_tabs.js";

const DEAD_EVERY_MS = 10_000;
const PAGE_ROWS = 50;
const NO_CHANNEL = "No channel: messages wait in the topic until there is one.";
const CHANNEL_METRICS = [
  "depth", "backend_depth", "finish_rate", "in_flight", "deferred", "requeue_rate", "timeout_rate", "messages",
  "clients",
];
const COMMANDS = [["Pause", "pause"], ["Resume", "unpause"], ["Empty", "empty"], ["Delete", "delete"]];
const SORTABLE = ["channel", "harm", "oldest_age_s", "drain_s", ...CHANNEL_METRICS];
const NODE_METRICS = ["depth", "topic_depth", "backend_depth", "message_rate", "messages", "in_flight", "channels"];

/** @param {{params: {topic: string}, query: Record<string, string>}} props */
export function TopicView({ params, query }) {
  const { topic } = params;
  useTitle(topic);
  const live = useLive("topic", { topic });
  // Here, and not next to its button: the dialog stays when the topic comes with the first message.
  const [isPublishing, setPublishing] = useState(false);
  const channels = live.rows.filter((row) => row.channel);
  const nodes = live.rows.filter((row) => !row.channel);
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href=${paths.topics()}>Topics</a></nav>
    <header class="title-row">
      <h1 tabindex="-1">${name(topic)}</h1>
      ${isKnown(live) && html`<${TopicBadges} row=${live.head} />`}
    </header>
    <${Contents} topic=${topic} live=${live} channels=${channels} nodes=${nodes} query=${query}
      onPublish=${() => setPublishing(true)} />
    ${isPublishing && html`<${PublishDialog} topic=${topic} nodes=${nodes.map((row) => row.node)}
      onClose=${() => setPublishing(false)} />`}
  `;
}

function Contents({ topic, live, channels, nodes, query, onPublish }) {
  if (live.state === "gone") return html`<${MissingTopic} topic=${topic} onPublish=${onPublish} />`;
  if (!live.time) return live.message ? html`<${Failed} message=${live.message} />` : html`<${Loading} />`;
  return html`
    <${TopicTabs} topic=${topic} current="overview" />
    <${Tiles} items=${tilesOf(live.head)} />
    <${Actions} topic=${topic} head=${live.head} channels=${channels} nodes=${nodes} onPublish=${onPublish} />
    <${DeadLetters} topic=${topic} />
    <${Charts} source=${{ topic }} live=${live} />
    <${Channels} topic=${topic} channels=${channels} query=${query} />
    <${Nodes} topic=${topic} nodes=${nodes} />
    <${LatencyTable} head=${live.head} nodes=${nodes} channels=${channels} />
  `;
}

function tilesOf(head) {
  return [
    ...flowTiles(head),
    ageTile(head),
    clientsTile(head, { of: "its channels" }),
  ];
}

function Actions({ topic, head, channels, nodes, onPublish }) {
  const order = (action) => ({ action, topic });
  const isPausedSomewhere = head.paused;
  const isPausedEverywhere = nodes.every((row) => row.paused);
  const leave = ({ errors }) => errors.length || navigate(paths.topics(), { replace: true });
  return html`<${ActionBar} label=${`Actions on ${topic}`} commands=${COMMANDS.map(([label, action]) => [label, order(action)])}>
    <${ActionButton} label="Publish a message" order=${onPublish} of=${order("publish")} />
    <${CreateChannel} topic=${topic} />
    ${!isPausedEverywhere && html`<${ActionButton} order=${order("pause")} label="Pause"
      confirm=${() => pauseTopic(topic)} />`}
    ${isPausedSomewhere && html`<${ActionButton} order=${order("unpause")} label="Resume" />`}
    <${SeekButton} topic=${topic} channels=${channels.map((row) => row.channel)} />
    <${ActionButton} order=${order("empty")} label="Empty" kind="danger" confirm=${() => emptyTopic(topic)} />
    <${ActionButton} order=${order("delete")} label="Delete" kind="danger" onDone=${leave}
      confirm=${() => deleteTopic(topic)} />
  <//>`;
}

/** Where the messages of the topic end that no one could deliver. */
function DeadLetters({ topic }) {
  const dead = `${topic}.dead`;
  const { data } = usePolled(dead, () => get("/topics", { search: dead, limit: 100 }), DEAD_EVERY_MS);
  const row = data?.rows.find((found) => found.topic === dead);
  if (isDead(topic)) {
    return html`<p><a href=${paths.deadLetters(topic)}>Where these dead letters come from, and how to requeue them</a></p>`;
  }
  if (!row?.depth) return null;
  return html`<p><a href=${paths.deadLetters(dead)}>${count(row.depth)} dead letters</a> wait in ${name(dead)}.</p>`;
}

function Channels({ topic, channels, query }) {
  const { sort, order } = query.sort ? orderOf(query, SORTABLE, "channel") : { sort: "harm", order: "desc" };
  const onSort = (key, direction) => setQuery({ sort: key, order: direction });
  const found = channels.filter((row) => searchedFor(query.search, row.channel));
  const inOrder = sort === "harm" ? sortedByHarm(found, order) : sorted(found, sort, order);
  const { shown, pager } = usePages(inOrder, { what: "channels", limit: PAGE_ROWS });
  const lines = useDepthLines("topic", { topic });
  const columns = useMemo(() => channelColumns(topic, lines), [topic, lines]);
  return html`<section class="section half" aria-labelledby="channels">
    <div class="section-head"><h2 id="channels">Channels</h2>
      <${Save} name=${`channels of ${topic}`} columns=${columns} rows=${() => inOrder} /></div>
    ${channels.length > PAGE_ROWS && html`<${SearchField} label="Search its channels" query=${query}
      found=${found.length} total=${channels.length} />`}
    <${Table} caption="Channels" captionHidden columns=${columns} rows=${shown}
      rowKey=${(row) => row.channel} sort=${sort} order=${order} onSort=${onSort}
      empty=${channels.length ? "No channel matches." : NO_CHANNEL} />
    ${pager}
  </section>`;
}

function channelColumns(topic, lines) {
  return [
    {
      key: "channel", title: "Channel", sortable: true, href: (row) => paths.channel(topic, row.channel),
      cell: (row) => name(row.channel),
    },
    problemsColumn((row) => html`<${ChannelBadges} row=${row} />`),
    depthColumn(lines),
    ...AGE_COLUMNS,
    ...metricColumns(CHANNEL_METRICS.slice(1)),
  ];
}

function Nodes({ topic, nodes }) {
  const columns = useMemo(() => nodeColumns(topic), [topic]);
  return html`<${NodeTable} caption="nsqds that have the topic" columns=${columns} rows=${nodes}
    empty="No nsqd has the topic." />`;
}

function nodeColumns(topic) {
  const take = (row) => html`<${ActionButton} order=${{ action: "tombstone", topic, node: row.node }} label="Tombstone"
    kind="danger" confirm=${() => tombstone(topic, row.node)} />`;
  return [...metricColumns(NODE_METRICS), { key: "take", title: "Actions", cell: take, saved: null }];
}
