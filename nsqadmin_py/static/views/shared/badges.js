// What deserves attention in a row of topics or channels: a word each, never a colour alone.

import { plain } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Badge } from "../../parts/state.js";

/** Topics into which nsqds put messages that were attempted too often. */
export function isDead(topic) {
  return topic.endsWith(".dead");
}

/** Is never on disk, and goes with its last channel or client. */
export function isEphemeral(name) {
  return name.endsWith("#ephemeral");
}

/** True where there are metrics of what a view shows. @param {{time: number, state: string}} live */
export function isKnown(live) {
  return live.time > 0 && live.state !== "gone";
}

const EPHEMERAL = "Never written to disk, and deleted with its last channel or client";

/** @param {{row: object}} props  a row of topics, or the metrics of one */
export function TopicBadges({ row }) {
  const isEmptyDead = isDead(row.topic) && !row.problems.some(({ kind }) => kind === "dead_letters");
  return html`<${Marks} problems=${row.problems} isEphemeral=${isEphemeral(row.topic)}>
    ${isEmptyDead && html`<${Badge} title="Messages that were attempted too often are put here">dead letters<//> `}
  <//>`;
}

/** @param {{row: object}} props  a row of channels, or the metrics of one */
export function ChannelBadges({ row }) {
  return html`<${Marks} problems=${row.problems} isEphemeral=${isEphemeral(row.channel)} />`;
}

/** The column of what is wrong; by it, the worst rows are first. @param {(row: any) => any} cell */
export function problemsColumn(cell) {
  return {
    key: "harm", title: "Problems", sortable: true, firstOrder: "desc", badges: true, hideTitle: true, cell,
    help: "By it, rows with errors are first, then those with warnings; of equal ones those with the most messages",
    savedAs: "problems", saved: (row) => row.problems.map(({ word }) => word).join(", "),
  };
}

/** The problems that nsqadmin found in a topic with its channels, or in a channel. */
function Marks({ problems, isEphemeral: isShortLived, children }) {
  return html`<span class="marks">
    ${problems.map(({ word, severity, texts }) => html`<${Badge} key=${word} kind=${severity}
      title=${plain(texts.join("\n"))}>${word}<//> `)}
    ${isShortLived && html`<${Badge} title=${EPHEMERAL}>ephemeral<//> `}${children}
  </span>`;
}
