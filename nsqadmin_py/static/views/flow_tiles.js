// The metrics that the cluster, a topic and a channel have alike, as tiles.

import { count, rate, short } from "../lib/format.js";
import { AGE_HELP, DRAIN_HELP, ageText, drainText } from "./columns.js";

// Key, label, how it is written, what it means, and the count whose rate it is: since the nsqds started.
const FIGURES = [
  ["depth", "Depth", short, "Messages that wait in memory or on disk; each channel has its own copy"],
  ["message_rate", "Messages in", rate, "Messages that arrive, per second", "messages"],
  ["finish_rate", "Finished", rate, "By consumers (FIN), per second; a message counts once for each channel"],
  ["in_flight", "In flight", short, "Sent to consumers, and not finished yet"],
  ["deferred", "Deferred", short, "To be delivered later"],
  ["requeue_rate", "Requeued", rate, "By consumers (REQ), per second", "requeued"],
  ["timeout_rate", "Timed out", rate, "Not finished within the message timeout, per second", "timed_out"],
];

/**
 * @param {object} head  the metrics of a live view
 * @returns {object[]}  items of Tiles
 */
export function flowTiles(head) {
  return FIGURES.map(([key, label, form, meaning, total]) => ({
    label, value: form(head[key]),
    title: total ? `${meaning}; ${count(head[total])} since the nsqds started` : `${meaning}: ${exact(head[key])}`,
    note: total ? `${short(head[total])} total` : noteOf(key, head),
    alert: key === "timeout_rate" && head[key] > 0,
  }));
}

/** @param {object} head  the metrics of a live view */
export function ageTile(head) {
  return { label: "Oldest message", value: ageText(head), title: AGE_HELP };
}

/** @param {object} head  the metrics of a channel */
export function drainTile(head) {
  return { label: "Drained in", value: drainText(head), title: DRAIN_HELP, alert: head.depth > 0 && head.drain_s === null };
}

/** What a sum contains: a message counts once for each channel of its topic. */
function noteOf(key, head) {
  if (key === "finish_rate" && head.channels > 1) return `${count(head.channels)} channels together`;
  return key === "depth" && missingText(head);
}

/** The messages that the depth leaves out. */
function missingText({ missing_depth: missing }) {
  return missing > 0 && `without ${short(missing)} on nsqds that do not answer`;
}

/** All digits of what is shown with three. */
function exact(value) {
  return Number.isInteger(value) ? count(value) : String(value ?? "unknown");
}
