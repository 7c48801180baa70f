// A channel: its metrics, who consumes it, what waits in it, and what can be done with it.

import { name } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { navigate, paths, useTitle } from "../../lib/route.js";
import { ActionBar, ActionButton } from "../../parts/actions.js";
import { Charts } from "../../parts/charts.js";
import { Failed, Gone, Loading } from "../../parts/state.js";
import { Tiles } from "../../parts/tiles.js";
import { ChannelBadges, isKnown } from "../shared/badges.js";
import { metricColumns } from "../shared/columns.js";
import { ageTile, clientsTile, drainTile, flowTiles } from "../shared/flow_tiles.js";
import { LatencyTable } from "../shared/latency.js";
import { NodeTable } from "../shared/node_table.js";
import { deleteChannel, emptyChannel, pauseChannel } from "../shared/questions.js";
import { Clients } from "./clients.js";
import { Peek } from "./peek.js";
import { SeekButton } from "./seek.js";

const COMMANDS = [["Pause", "pause"], ["Resume", "unpause"], ["Empty", "empty"], ["Delete", "delete"]];
const NODE_COLUMNS = metricColumns([
  "depth", "backend_depth", "in_flight", "deferred", "message_rate", "finish_rate", "requeued", "timed_out", "messages",
  "clients",
]);

/** @param {{params: {topic: string, channel: string}, query: Record<string, string>}} props */
export function ChannelView({ params }) {
  const { topic, channel } = params;
  useTitle(`${channel} of ${topic}`);
  const live = useLive("channel", { topic, channel });
  return html`
    <nav class="crumbs" aria-label="Where this is">
      <a href=${paths.topics()}>Topics</a> <span aria-hidden="true">/</span>
      <a href=${paths.topic(topic)}>${name(topic)}</a>
    </nav>
    <header class="title-row">
      <h1 tabindex="-1">${name(channel)}</h1>
      ${isKnown(live) && html`<${ChannelBadges} row=${live.head} />`}
    </header>
    <${Contents} topic=${topic} channel=${channel} live=${live} />
  `;
}

function Contents({ topic, channel, live }) {
  if (live.state === "gone") return html`<${Gone} what="The channel" named=${channel} />`;
  if (!live.time) return live.message ? html`<${Failed} message=${live.message} />` : html`<${Loading} />`;
  const { head, rows } = live;
  const nodes = rows.map((row) => row.node);
  return html`
    <${Tiles} items=${tilesOf(head)} />
    <${Actions} topic=${topic} channel=${channel} head=${head} rows=${rows} />
    <${Charts} source=${{ topic, channel }} live=${live} />
    <${NodeTable} caption="nsqds that have the channel" columns=${NODE_COLUMNS} rows=${rows}
      empty="No nsqd has the channel." />
    <${LatencyTable} head=${head} nodes=${rows} />
    <${Clients} topic=${topic} channel=${channel} />
    <${Peek} topic=${topic} channel=${channel} nodes=${nodes} />
  `;
}

function tilesOf(head) {
  return [
    ...flowTiles(head),
    ageTile(head),
    drainTile(head),
    clientsTile(head, { of: "it", alert: !head.clients && head.depth > 0 && "error" }),
  ];
}

function Actions({ topic, channel, head, rows }) {
  const order = (action) => ({ action, topic, channel });
  const isPausedEverywhere = rows.every((row) => row.paused);
  const leave = ({ errors }) => errors.length || navigate(paths.topic(topic), { replace: true });
  return html`<${ActionBar} label=${`Actions on ${channel}`} commands=${COMMANDS.map(([label, action]) => [label, order(action)])}>
    ${!isPausedEverywhere && html`<${ActionButton} order=${order("pause")} label="Pause"
      confirm=${() => pauseChannel(topic, channel)} />`}
    ${head.paused && html`<${ActionButton} order=${order("unpause")} label="Resume" />`}
    <${SeekButton} topic=${topic} channel=${channel} />
    <${ActionButton} order=${order("empty")} label="Empty" kind="danger"
      confirm=${() => emptyChannel(topic, channel)} />
    <${ActionButton} order=${order("delete")} label="Delete" kind="danger" onDone=${leave}
      confirm=${() => deleteChannel(topic, channel)} />
  <//>`;
}
