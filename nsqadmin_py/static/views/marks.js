// What is worth a look in a row of topics or channels: a word each, never a colour alone.

import { count, rate } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Badge } from "../parts/state.js";

// A depth grows where it fell at none of the last steps (of 15 s), and by so much in all of them together.
const GROWTH_STEPS = 12;
const LEAST_STEPS = 4;
const LEAST_GROWTH = 10;
const LEAST_GROWTH_PART = 0.1;

/**
 * @param {(number | null)[]} values  depths, the oldest first
 * @returns {number}  by how many messages it grew; 0 where it does not grow
 */
export function growthOf(values) {
  const latest = values.filter((value) => value !== null).slice(-GROWTH_STEPS);
  if (latest.length < LEAST_STEPS || latest.some((value, place) => place && value < latest[place - 1])) return 0;
  const grown = latest.at(-1) - latest[0];
  return grown >= Math.max(LEAST_GROWTH, latest[0] * LEAST_GROWTH_PART) ? grown : 0;
}

/** Topics into which nsqds put messages that were attempted too often. */
export function isDead(topic) {
  return topic.endsWith(".dead");
}

/** Is never on disk, and goes with its last channel or client. */
export function isEphemeral(name) {
  return name.endsWith("#ephemeral");
}

/** True where there are figures of what a view looks at. @param {{time: number, state: string}} live */
export function isKnown(live) {
  return live.time > 0 && live.state !== "gone";
}

function waits(row) {
  return row.depth > 0;
}

const PAUSED = [(row) => row.paused, "paused", "warning", () => "Paused: messages keep coming, and wait"];
const TIMED_OUT = [
  (row) => row.timeout_rate > 0, "timing out", "error",
  (row) => `${rate(row.timeout_rate)} are not finished within the message timeout, and are queued again`,
];
const EPHEMERAL = [
  (row) => isEphemeral(row.channel ?? row.topic), "ephemeral", "muted",
  () => "Never written to disk, and deleted with its last channel or client",
];

// When, the word, how bad it is, and what it means.
const OF_TOPIC = [
  PAUSED,
  [(row) => !row.paused && row.paused_channels > 0, "channel paused", "warning",
    (row) => `${count(row.paused_channels)} of its channels ${row.paused_channels === 1 ? "is" : "are"} paused`],
  [(row) => !row.channels && !isDead(row.topic) && (waits(row) || row.message_rate > 0), "no channel", "warning",
    () => "The topic has no channel: its messages wait in the topic until it gets one"],
  [(row) => row.channels > 0 && !row.clients && waits(row), "no consumers", "warning",
    () => "Messages wait, and no consumer is connected to any of its channels"],
  TIMED_OUT,
  [(row) => isDead(row.topic), "dead letters", "warning", () => "Messages that were attempted too often are put here"],
  EPHEMERAL,
];
const OF_CHANNEL = [
  PAUSED,
  [(row) => !row.clients && waits(row), "no consumers", "warning", () => "Messages wait, and no consumer is connected"],
  TIMED_OUT,
  EPHEMERAL,
];

/** @param {{row: object, values?: (number | null)[]}} props  a row of topics, and its depths */
export function TopicMarks({ row, values = [] }) {
  return html`<${Marks} row=${row} marks=${OF_TOPIC} grown=${growthOf(values)} />`;
}

/** @param {{row: object, values?: (number | null)[]}} props  a row of channels, and its depths */
export function ChannelMarks({ row, values = [] }) {
  return html`<${Marks} row=${row} marks=${OF_CHANNEL} grown=${growthOf(values)} />`;
}

function grownText(grown) {
  return `The depth grew by ${count(grown)} in the last minutes, and never fell`;
}

function Marks({ row, marks, grown }) {
  const found = marks.filter(([holds]) => holds(row));
  if (!found.length && !grown) return null;
  return html`<span class="marks">
    ${grown > 0 && html`<${Badge} kind="warning" title=${grownText(grown)}>↗ growing<//> `}
    ${found.map(([, word, kind, why]) => html`<${Badge} key=${word} kind=${kind} title=${why(row)}>${word}<//> `)}
  </span>`;
}
