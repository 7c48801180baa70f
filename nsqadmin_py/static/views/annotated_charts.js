// Charts with annotations of what may have changed the history of figures: actions of users, and starts of nsqds.

import { get } from "../lib/api.js";
import { html, useMemo } from "../lib/html.js";
import { Charts } from "../parts/charts.js";
import { usePolled } from "./polling.js";

const EVERY_MS = 5000;
const DONE = new Map(Object.entries({
  pause: "paused", unpause: "resumed", empty: "emptied", delete: "deleted", seek: "moved by a seek",
  tombstone: "tombstoned", requeue_dead_letters: "dead letters requeued",
}));

/** @param {Omit<Parameters<typeof Charts>[0], "annotations">} props those of Charts */
export function AnnotatedCharts(props) {
  return html`<${Charts} ...${props} annotations=${useAnnotations(props.source)} />`;
}

/**
 * @param {{topic?: string, channel?: string, node?: string}} source whose annotations; `{}` is the cluster
 * @returns {import("../parts/charts.js").ChartAnnotation[]} the oldest first; the same list until there are others
 */
function useAnnotations(source) {
  const key = JSON.stringify(source);
  const { data } = usePolled(key, () => get("/annotations", source), EVERY_MS);
  const told = JSON.stringify(data?.annotations ?? []);
  return useMemo(() => JSON.parse(told).map((annotation) => ({ time: annotation.time_s, text: textOf(annotation) })), [told]);
}

/** "archive of orders paused by bob" @param {Record<string, string>} annotation */
export function textOf({ action, topic, channel, node, user }) {
  if (action === "start") return `nsqd ${node} started`;
  if (action === "promote") return `nsqd ${node} promoted${user ? ` by ${user}` : ""}`;
  const subject = channel ? `${channel} of ${topic}` : topic;
  const place = action === "tombstone" ? ` on ${node}` : "";
  return `${subject} ${DONE.get(action) ?? action}${place}${user ? ` by ${user}` : ""}`;
}
