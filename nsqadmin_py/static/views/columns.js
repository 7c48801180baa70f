// Columns that several tables have: one place for their titles and what they mean.

import { age, count, duration, figure, tenth } from "../lib/format.js";

const FIGURES = {
  depth: ["Depth", count, "Messages that wait in memory or on disk; of a topic, the copies of all its channels"],
  topic_depth: ["In the topic", count, "Messages that have not been copied to the channels yet"],
  backend_depth: ["On disk", count, "The part of the depth that is on disk; the rest is in memory"],
  in_flight: ["In flight", count, "Sent to consumers, and not finished yet"],
  deferred: ["Deferred", count, "To be delivered later"],
  messages: ["Messages total", count, "Since the nsqds started"],
  requeued: ["Requeued total", count, "By consumers (REQ), since the nsqds started"],
  timed_out: ["Timed out total", count, "Not finished within the message timeout, since the nsqds started"],
  channels: ["Channels", count, "Each gets a copy of every message of the topic"],
  clients: ["Clients", count, "Consumers that are connected"],
  message_rate: ["In/s", tenth, "Messages that arrive, per second"],
  finish_rate: ["Finished/s", tenth, "By consumers (FIN), per second; of a topic, the copies of all its channels"],
  requeue_rate: ["Requeued/s", tenth, "By consumers (REQ), per second"],
  timeout_rate: ["Timed out/s", tenth, "Not finished within the message timeout, per second"],
};

/** The time since the oldest waiting message was published. @param {{oldest_age_s: number | null, depth: number}} row */
export function ageText({ oldest_age_s: ageS, depth }) {
  if (depth > 0 && ageS !== null) return age(ageS);
  return depth > 0 ? "unknown" : duration(null);
}

/** The time until nothing waits. @param {{drain_s: number | null, depth: number, clients: number, paused?: boolean}} row */
export function drainText({ drain_s: drainS, depth, clients, paused }) {
  if (!depth) return duration(null);
  if (paused) return "paused";
  if (drainS === null) return clients ? "not at this rate" : "no consumer";
  return duration(Math.max(1, Math.ceil(drainS)) * 1e9);
}

export const AGE_HELP = "How long the oldest waiting message has been waiting; Go’s nsqd does not report it";
export const DRAIN_HELP = "How long it takes until nothing waits, if messages come and are finished as in the last half minute";

/** Columns of channels: how late their consumers are. */
export const AGE_COLUMNS = [
  { key: "oldest_age_s", title: "Oldest", help: AGE_HELP, sortable: true, number: true, cell: ageText },
  { key: "drain_s", title: "Drained in", help: DRAIN_HELP, sortable: true, number: true, cell: drainText },
];

/**
 * @param {string[]} keys  of metrics in rows
 * @param {{sortable?: boolean}} [options]
 * @returns {object[]}  columns of a Table
 */
export function figureColumns(keys, { sortable = true } = {}) {
  return keys.map((key) => {
    const [title, form, help] = FIGURES[key];
    return { key, title, help, sortable, number: true, cell: (row) => figure(row[key], form) };
  });
}
