// What an action destroys, in sentences with metrics. Pure: the metrics are those of the views of /api/v2.

import { bytes, count } from "../../lib/format.js";

// The most channels that are named; the others are only counted.
const MOST_NAMED = 12;
const LATE = {
  gone: "it is gone", slow: "it is slow", failed: "it has failed", new: "it has not been asked yet",
};

/**
 * "1 message", "12,345 messages"
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 * @returns {string}
 */
export function counted(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

/**
 * All that waits in a row in any way.
 * @param {{depth: number, in_flight: number, deferred: number}} row
 * @returns {number}
 */
export function held(row) {
  return row.depth + row.in_flight + row.deferred;
}

/** How many there are in which way. */
function waysOf(row) {
  const ways = [[row.depth, "waiting"], [row.in_flight, "in flight"], [row.deferred, "deferred"]];
  return ways.filter(([number]) => number);
}

function waysText(row) {
  return waysOf(row).map(([number, way]) => `${count(number)} ${way}`).join(", ");
}

/**
 * @param {object} topic  the answer of /topics/T
 * @param {object | null} log  that of /topics/T/log, where it can be had
 * @returns {string[]}
 */
export function ofTopic(topic, log) {
  const channels = topic.rows.filter((row) => row.channel);
  return [
    ...ofEmptied(topic),
    ...ofChannels(channels),
    ...ofClients(topic),
    ...ofLog(log),
  ];
}

/**
 * @param {object} topic  the answer of /topics/T
 * @returns {string[]}
 */
export function ofTopicItself({ topic_depth: depth }) {
  return depth ? [`${counted(depth, "message")} waiting in the topic itself`] : [];
}

/**
 * @param {object} row  a topic on one nsqd; of its channels only the number is known
 * @returns {string[]}
 */
export function ofPart(row) {
  return [
    ...ofEmptied(row),
    ...(row.channels ? [counted(row.channels, "channel")] : []),
    ...ofClients(row),
  ];
}

function ofChannels(channels) {
  if (!channels.length) return [];
  const byDepth = [...channels].sort((one, other) => held(other) - held(one));
  const named = byDepth.slice(0, MOST_NAMED).map((row) => `${row.channel} (${waysText(row) || "empty"})`);
  const more = channels.length - named.length;
  const list = named.join(", ") + (more ? `, and ${count(more)} more` : "");
  return [`${counted(channels.length, "channel")}: ${list}`];
}

function ofClients(row) {
  return row.clients ? [`the connections of ${counted(row.clients, "consumer")}`] : [];
}

function ofLog(log) {
  const retained = (log?.nodes ?? []).map((node) => node.answer).filter((answer) => answer?.files);
  const messages = retained.reduce((sum, answer) => sum + messagesOf(answer), 0);
  if (!messages) return [];
  const size = retained.reduce((sum, answer) => sum + answer.bytes, 0);
  return [`the log of ${counted(messages, "message")} (${bytes(size)}) that channels could seek back to`];
}

/**
 * How many a log keeps.
 * @param {{files: {message_count: number}[]}} log
 * @returns {number}
 */
export function messagesOf(log) {
  return log.files.reduce((sum, file) => sum + file.message_count, 0);
}

/**
 * @param {object} channel  a channel's metrics
 * @returns {string[]}
 */
export function ofChannel(channel) {
  return ["the channel, and its place in the topic", ...ofEmptied(channel), ...ofClients(channel)];
}

/**
 * All messages of a topic or channel.
 * @param {object} row  its metrics
 * @returns {string[]}
 */
export function ofEmptied(row) {
  const ways = waysOf(row);
  const all = counted(held(row), "message");
  if (ways.length < 2) return ways.map(([, way]) => `${all} ${way}`);
  return [`${all}: ${waysText(row)}`];
}

/**
 * Nsqds whose metrics are old, or missing: no one knows what they have.
 * @param {object[]} rows  rows of a topic or channel, or nsqds
 * @param {{nodes_failed: number, nodes_slow: number}} [overview]  for those that are in no row
 * @returns {string[]}
 */
export function unknown(rows, overview) {
  const late = rows.filter((row) => row.node && !row.channel && row.state !== "ok");
  const missing = overview ? overview.nodes_failed + overview.nodes_slow - late.length : 0;
  return [
    ...late.map((row) => `messages that ${row.node} received since its last answer: ${LATE[row.state] ?? LATE.slow}`),
    ...(missing > 0 ? [`messages of ${counted(missing, "nsqd")} without an answer`] : []),
  ];
}
