// How the figures of a thing went lately, as small as fits into a tile.

import { get } from "../lib/api.js";
import { useMemo } from "../lib/html.js";
import { usePolled } from "./polling.js";

const EVERY_MS = 10_000;
const METRICS = [
  "depth", "in_flight", "deferred", "message_rate", "finish_rate", "requeue_rate", "timeout_rate",
];
const POINTS = 60;

/**
 * @param {{topic?: string, channel?: string, node?: string}} source  nothing: the cluster
 * @returns {Map<string, (number | null)[]>}  by metric, over 10 minutes, the oldest first
 */
export function useCourses(source) {
  const load = () => get("/history", { ...source, metric: METRICS.join(","), range: "10m" });
  const { data } = usePolled(JSON.stringify(source), load, EVERY_MS);
  return useMemo(() => coursesOf(data), [data]);
}

function coursesOf(history) {
  if (!history) return new Map();
  const [, ...lists] = history.data;
  return new Map(history.metrics.map((metric, place) => [metric, thinned(lists[place])]));
}

/** Means of neighbours. */
function thinned(values) {
  const step = Math.max(1, Math.ceil(values.length / POINTS));
  const means = [];
  for (let start = 0; start < values.length; start += step) means.push(meanOf(values.slice(start, start + step)));
  return means;
}

function meanOf(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}
