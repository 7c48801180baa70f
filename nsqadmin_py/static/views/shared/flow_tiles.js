// The metrics that the cluster, a topic and a channel have alike, as tiles.

import { count, short } from "../../lib/format.js";
import { METRICS } from "../../lib/metrics.js";
import { ageText, drainText } from "./columns.js";

const MAIN = ["depth", "message_rate", "finish_rate"];
const MINOR = ["in_flight", "deferred", "requeue_rate", "timeout_rate"];

/**
 * @param {object} head  the metrics of a live view
 * @returns {object[]}  items of Tiles
 */
export function flowTiles(head) {
  return [...MAIN, ...MINOR].map((key) => {
    const { title: label, help, total } = METRICS[key];
    return {
      label, value: short(head[key]),
      title: total ? `${help}; ${count(head[total])} since the nsqds started` : `${help}: ${exact(head[key])}`,
      note: total ? totalText(head[total]) : noteOf(key, head),
      alert: key === "timeout_rate" && head[key] > 0,
      isMinor: MINOR.includes(key),
    };
  });
}

/** @param {object} head  the metrics of a live view */
export function ageTile(head) {
  const { title: label, help } = METRICS.oldest_age_s;
  return { label, value: ageText(head), title: help };
}

/** @param {object} head  the metrics of a live view @param {{of: string, alert?: string | boolean}} words  whose channels they are */
export function clientsTile(head, { of, alert = false }) {
  const title = `Consumers that are connected to ${of}`;
  return { label: METRICS.clients.title, value: count(head.clients), title, alert, isMinor: !alert };
}

/** @param {object} head  the metrics of a channel */
export function drainTile(head) {
  const { title: label, help } = METRICS.drain_s;
  return { label, value: drainText(head), title: help, alert: head.depth > 0 && head.drain_s === null };
}

function totalText(total) {
  return total ? `${short(total)} total` : "";
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
