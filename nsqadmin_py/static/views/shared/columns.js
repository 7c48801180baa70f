// Columns that several tables have.

import { age, count, dimmed, duration, figure, tenth } from "../../lib/format.js";
import { METRICS } from "../../lib/metrics.js";

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

/** Columns of channels: how late their consumers are. */
export const AGE_COLUMNS = [
  { ...metricColumn("oldest_age_s"), unit: "s", cell: (row) => dimmed(ageText(row)) },
  { ...metricColumn("drain_s"), unit: "s", cell: (row) => dimmed(drainText(row)) },
];

/** @param {string} key  of a metric @param {boolean} [sortable] */
function metricColumn(key, sortable = true) {
  const { title, help } = METRICS[key];
  return { key, title, help, sortable, number: true };
}

/**
 * @param {string[]} keys  of metrics in rows
 * @param {{sortable?: boolean}} [options]
 * @returns {object[]}  columns of a Table
 */
export function metricColumns(keys, { sortable = true } = {}) {
  return keys.map((key) => {
    const form = key.endsWith("_rate") ? tenth : count;
    return { ...metricColumn(key, sortable), cell: (row) => figure(row[key], form) };
  });
}
