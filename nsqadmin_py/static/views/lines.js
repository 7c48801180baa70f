// The course of a figure beside each row of a list.

import { get } from "../lib/api.js";
import { useMemo } from "../lib/html.js";
import { usePolled } from "./polling.js";

const EVERY_MS = 10_000;
const POINTS = 40;
const RANGE = "10m";
// As many as nsqadmin gives at once; an address must not become too long.
const MOST_LINES = 100;
const MOST_CHARACTERS = 100;

/**
 * Depths over the last 10 minutes.
 * @param {"topic" | "channel" | "node"} kind
 * @param {string[]} names  in any order; of a long list only the first ones
 * @param {{of?: string}} [words]  the topic, where it is channels
 * @returns {Map<string, (number | null)[]>}  by name, the oldest first; the same one until there are new values
 */
export function useLines(kind, names, words = {}) {
  const asked = names.filter((name) => name.length <= MOST_CHARACTERS).slice(0, MOST_LINES).sort();
  const load = async () => {
    if (!asked.length) return { lines: {} };
    return get("/sparklines", { ...words, [kind]: asked, points: POINTS, range: RANGE });
  };
  const { data } = usePolled(asked.join(" "), load, EVERY_MS);
  return useMemo(() => new Map(Object.entries(data?.lines ?? {})), [data]);
}

/** The top of a scale for all lines of a list. @param {Map<string, (number | null)[]>} lines */
export function highestOf(lines) {
  let highest = 0;
  for (const line of lines.values()) for (const value of line) highest = Math.max(highest, value ?? 0);
  return highest;
}
