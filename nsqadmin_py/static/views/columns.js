// Columns that several tables have: one place for their titles and what they mean.

import { count, figure, rate } from "../lib/format.js";

const FIGURES = {
  depth: ["Depth", count, "Messages that wait in memory or on disk"],
  topic_depth: ["In the topic", count, "Messages that no channel has got yet"],
  backend_depth: ["On disk", count, "Of the depth, what is not in memory"],
  in_flight: ["In flight", count, "With consumers, and not finished yet"],
  deferred: ["Deferred", count, "To be delivered later"],
  messages: ["Messages", count, "In all, since the nsqds started"],
  requeued: ["Requeued", count, "Given back by consumers, since the nsqds started"],
  timed_out: ["Timed out", count, "Not finished in time, since the nsqds started"],
  channels: ["Channels", count, "Each gets all messages of the topic"],
  clients: ["Clients", count, "Consumers that are connected"],
  message_rate: ["In", rate, "That come, per second"],
  finish_rate: ["Out", rate, "Finished by consumers, per second"],
  requeue_rate: ["Requeued", rate, "Given back by consumers, per second"],
  timeout_rate: ["Timed out", rate, "Not finished in time by consumers, per second"],
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
