// Columns that several tables have: one place for their titles and what they mean.

import { count, figure, rate } from "../lib/format.js";

const FIGURES = {
  depth: ["Depth", count, "Messages that wait in memory or on disk"],
  topic_depth: ["In the topic", count, "Messages that have not been copied to the channels yet"],
  backend_depth: ["On disk", count, "The part of the depth that is on disk; the rest is in memory"],
  in_flight: ["In flight", count, "Sent to consumers, and not finished yet"],
  deferred: ["Deferred", count, "To be delivered later"],
  messages: ["Messages total", count, "Since the nsqds started"],
  requeued: ["Requeued total", count, "By consumers (REQ), since the nsqds started"],
  timed_out: ["Timed out total", count, "Not finished within the message timeout, since the nsqds started"],
  channels: ["Channels", count, "Each gets a copy of every message of the topic"],
  clients: ["Clients", count, "Consumers that are connected"],
  message_rate: ["In", rate, "Messages that arrive, per second"],
  finish_rate: ["Finished", rate, "By consumers (FIN), per second"],
  requeue_rate: ["Requeued", rate, "By consumers (REQ), per second"],
  timeout_rate: ["Timed out", rate, "Not finished within the message timeout, per second"],
};

/**
 * @param {string[]} keys  of figures in rows
 * @param {{sortable?: boolean}} [options]
 * @returns {object[]}  columns of a Table
 */
export function figureColumns(keys, { sortable = true } = {}) {
  return keys.map((key) => {
    const [title, form, help] = FIGURES[key];
    return { key, title, help, sortable, number: true, cell: (row) => figure(row[key], form) };
  });
}
