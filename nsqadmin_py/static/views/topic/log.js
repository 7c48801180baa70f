// What each nsqd keeps of a topic on disk, and how far back a channel can go.

import { at, get } from "../../lib/api.js";
import { age, bytes, count, duration, figure, iso, name, plain, timeText } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { METRICS } from "../../lib/metrics.js";
import { paths, useTitle } from "../../lib/route.js";
import { ActionButton } from "../../parts/actions.js";
import { Badge, Failed, Loading, StateBadge } from "../../parts/state.js";
import { Table } from "../../parts/table.js";
import { Tiles } from "../../parts/tiles.js";
import { SeekDialog } from "../channel/seek.js";
import { isUnwell } from "../node/node_parts.js";
import { isEphemeral } from "../shared/badges.js";
import { counted } from "../shared/lost_messages.js";
import { Metadata } from "../shared/metadata.js";
import { usePages } from "../shared/pages.js";
import { usePolled } from "../shared/polling.js";
import { LogBar } from "./log_bar.js";
import { extentOf, sumsOf } from "./log_sums.js";
import { TopicTabs } from "./topic_tabs.js";

const ASKED_EVERY_MS = 10_000;
const PAGE_LOGS = 20;
const LEGEND = [
  ["needed", "not finished by some channel"], ["kept", "finished, kept for seek"],
  ["sparse", "sparse: finished messages were removed"],
];

/** @param {{params: {topic: string}}} props */
export function LogView({ params }) {
  const { topic } = params;
  useTitle(`Log of ${topic}`);
  return html`
    <nav class="crumbs" aria-label="Where this is">
      <a href=${paths.topics()}>Topics</a> / <a href=${paths.topic(topic)}>${name(topic)}</a>
    </nav>
    <header class="title-row"><h1 tabindex="-1">Log of ${name(topic)}</h1></header>
    <${TopicTabs} topic=${topic} current="log" />
    ${isEphemeral(topic) ? html`<p>An ephemeral topic has no log: its messages are in memory only, and go with it.</p>`
      : html`<${Contents} topic=${topic} />`}
  `;
}

function Contents({ topic }) {
  const { data, message, reload } = usePolled(topic, () => asked(topic), ASKED_EVERY_MS);
  const [sought, setSought] = useState(null);
  const { shown, pager } = usePages(data?.logs ?? [], { what: "nsqds", limit: PAGE_LOGS });
  if (message && !data) return html`<${Failed} message=${message} retry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const sums = sumsOf(data.logs);
  const extent = extentOf(data.logs, data.time);
  const seek = (node, to) => setSought({ node, to });
  return html`
    ${message && html`<${Failed} message=${message} retry=${reload} />`}
    <${Tiles} items=${tilesOf(sums, data.time)} />
    ${extent && html`<${Legend} />`}
    ${shown.map((log) => html`
      <${OneLog}
        key=${log.node} log=${log} node=${data.nodes.get(log.node)} extent=${extent} timeS=${data.time} seek=${seek}
      />
    `)}
    ${pager}
    ${sought && html`<${SeekDialog}
      topic=${topic} channels=${data.channels} ...${sought} onClose=${() => setSought(null)}
    />`}
  `;
}

/** The logs, the channels that could be moved in them, and how the nsqds are. */
async function asked(topic) {
  const paths = [at("topics", topic, "log"), at("topics", topic), "/nodes"];
  const [log, metrics, nodes] = await Promise.all(paths.map((path) => get(path)));
  return {
    logs: log.nodes,
    channels: metrics.rows.filter((row) => row.channel).map((row) => row.channel),
    nodes: new Map(nodes.rows.map((row) => [row.node, row])),
    time: metrics.time,
  };
}

function tilesOf(sums, timeS) {
  return [
    { label: "Kept", value: count(sums.retained), title: "Messages on disk" },
    { label: "Not finished", value: count(sums.needed), title: "By at least one channel" },
    { label: "On disk", value: bytes(sums.bytes), note: counted(sums.files, "file") },
    {
      label: METRICS.oldest_age_s.title, value: sums.earliestNs ? age(timeS - sums.earliestNs / 1e9) : "none",
      title: sums.earliestNs ? `of ${timeText(sums.earliestNs)}, on one nsqd at least` : "",
    },
  ];
}

function Legend() {
  return html`<p class="legend muted">
    ${LEGEND.map(([kind, meaning]) => html`
      <span key=${kind} class="legend-key"><span class=${`swatch ${kind}`} aria-hidden="true"></span>${meaning}</span>
    `)}
  </p>`;
}

// ---- one nsqd

function OneLog({ log, node, extent, timeS, seek }) {
  const { answer, error } = log;
  return html`
    <section class="panel" aria-label="Log on ${log.node}">
      <h2><a href=${paths.node(log.node)}>${name(log.node)}</a> <${Health} node=${node} /></h2>
      ${error && html`<p class="muted">${plain(error)}</p>`}
      ${answer?.files && html`
        <${LogBar} files=${answer.files} extent=${extent} label=${`Files of ${log.node} by time`} />
        <div class="columns">
          <${Metadata} rows=${metadataOf(answer, timeS)} />
          <${Metadata} rows=${settingsOf(answer)} />
        </div>
        <${Files} node=${log.node} files=${answer.files} seek=${seek} />
      `}
    </section>
  `;
}

function Health({ node }) {
  if (!node) return null;
  return html`
    ${node.state !== "ok" && html`<${StateBadge} state=${node.state} />`}
    ${isUnwell(node) && html`<${Badge} kind="error">${plain(node.health)}<//>`}
  `;
}

function metadataOf(answer, timeS) {
  const { earliestNs, retained, needed } = sumsOf([{ answer }]);
  return [
    ["Messages", `${count(retained)} kept, ${count(needed)} of them not finished`],
    ["On disk", bytes(answer.bytes)],
    ["Oldest message", earliestNs ? `${timeText(earliestNs)} (${age(timeS - earliestNs / 1e9)})` : "none"],
    ["Message numbers", `from ${count(answer.earliest_seq)}; the next one is ${count(answer.next_seq)}`],
  ];
}

/** What its settings say; an older nsqd does not have them. */
function settingsOf(answer) {
  if (answer.retention_ns === undefined) return [];
  const { retention_ns: ns, retention_bytes: size, max_topic_bytes: most, max_disk_bytes: mostOfAll } = answer;
  const limitTexts = [ns && `for ${duration(ns)}`, size && `the newest ${bytes(size)}`].filter(Boolean);
  const limits = [most && `${bytes(most)} for this topic`, mostOfAll && `${bytes(mostOfAll)} for all`].filter(Boolean);
  return [
    ["Retention", limitTexts.length ? `finished ones stay ${limitTexts.join(", and ")}` : "files go when all in them is finished"],
    ["Size limits", limits.join(", ") || "none but the disk"],
    ["Free on the disk", bytes(answer.free_disk_bytes)],
    ["Durability", syncText(answer)],
  ];
}

function syncText({ sync_every: every, sync_timeout_ns: timeoutNs }) {
  if (every === 1) return "every publish is on disk before it is acknowledged";
  return `on disk after ${counted(every, "message")} or ${duration(timeoutNs)}: a power cut may lose as much`;
}

// ---- its files

function Files({ node, files, seek }) {
  const columns = useMemo(() => columnsOf(node, seek), [node]);
  return html`
    <details class="log-files">
      <summary>${counted(files.length, "file")}</summary>
      <${Table}
        caption=${`Files of the log on ${node}`} captionHidden columns=${columns} rows=${[...files].reverse()}
        rowKey=${(file) => file.name} empty="No file yet."
      />
    </details>
  `;
}

function columnsOf(node, seek) {
  return [
    { key: "name", title: "File", cell: fileCell },
    { key: "first_timestamp", title: "First message", cell: (file) => momentOf(file.first_timestamp) },
    { key: "last_timestamp", title: "Last message", cell: (file) => momentOf(file.last_timestamp) },
    { key: "first_seq", title: "First number", number: true },
    { key: "end_seq", title: "Up to", number: true, help: "The number after its last" },
    { key: "message_count", title: "Kept", number: true },
    { key: "live_count", title: "Not finished", number: true, help: "By at least one channel" },
    { key: "bytes", title: "Size", number: true, cell: (file) => figure(file.bytes, bytes) },
    { key: "seek", title: "Actions", cell: (file) => html`<${SeekHere} node=${node} file=${file} seek=${seek} />` },
  ];
}

function fileCell(file) {
  const sparse = file.sparse && html`<${Badge} title="Its finished messages were removed">sparse<//>`;
  return html`${name(file.name)} ${sparse}`;
}

function momentOf(timeNs) {
  return timeNs ? html`<time datetime=${iso(timeNs)} title=${iso(timeNs)}>${timeText(timeNs)}</time>` : "";
}

function SeekHere({ node, file, seek }) {
  if (!file.first_timestamp) return null;
  const label = html`Seek to here<span class="visually-hidden">, ${timeText(file.first_timestamp)}</span>`;
  // Nanoseconds do not fit into a double: rather a message of the file before than one too few.
  const toMs = Math.floor(file.first_timestamp / 1e6 - 1);
  return html`<${ActionButton}
    label=${label} kind="small" order=${() => seek(node, toMs)} title="Move a channel to the first message of this file"
  />`;
}
