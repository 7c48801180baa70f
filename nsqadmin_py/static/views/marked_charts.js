// Charts with marks of what may have changed the course of figures: actions of users, and starts of nsqds.

import { get } from "../lib/api.js";
import { html, useMemo } from "../lib/html.js";
import { Charts } from "../parts/charts.js";
import { usePolled } from "./polling.js";

const EVERY_MS = 5000;
const DONE = new Map(Object.entries({
  pause: "paused", unpause: "resumed", empty: "emptied", delete: "deleted", seek: "moved by a seek",
  tombstone: "tombstoned", requeue_dead_letters: "dead letters requeued",
}));

/** @param {Omit<Parameters<typeof Charts>[0], "marks">} props those of Charts */
export function MarkedCharts(props) {
  return html`<${Charts} ...${props} marks=${useMarks(props.source)} />`;
}

/**
 * @param {{topic?: string, channel?: string, node?: string}} source whose marks; `{}` is the cluster
 * @returns {import("../parts/charts.js").ChartMark[]} the oldest first; the same list until there are others
 */
function useMarks(source) {
  const key = JSON.stringify(source);
  const { data } = usePolled(key, () => get("/marks", source), EVERY_MS);
  const told = JSON.stringify(data?.marks ?? []);
  return useMemo(() => JSON.parse(told).map((mark) => ({ time: mark.time_s, text: textOf(mark) })), [told]);
}

/** "archive of orders paused by bob" @param {Record<string, string>} mark */
export function textOf({ action, topic, channel, node, user }) {
  if (action === "start") return `nsqd ${node} started`;
  if (action === "promote") return `nsqd ${node} promoted${user ? ` by ${user}` : ""}`;
  const subject = channel ? `${channel} of ${topic}` : topic;
  const place = action === "tombstone" ? ` on ${node}` : "";
  return `${subject} ${DONE.get(action) ?? action}${place}${user ? ` by ${user}` : ""}`;
}
