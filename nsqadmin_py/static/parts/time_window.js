// The time that charts show: a range up to now, or a part of the last day. It is in the address, so that a link shows the
// same.

import { useEffect } from "../lib/html.js";
import { setQuery, useRoute } from "../lib/route.js";

export const RANGES = { "10m": 600, "1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600 };
const FIRST_RANGE = "10m";
// Of an hour there are metrics in small steps; of what is older, one for each minute.
const FINE_S = RANGES["1h"];
const DAY_S = RANGES["24h"];
const NARROWEST_S = 20;

/** @typedef {{range: string, from: number, until: number}} Window  times in s, 0 for a range up to now */

// Goes along from view to view; a page that is loaded shows what its address says.
let carried = FIRST_RANGE;

/**
 * What an address means.
 * @param {Record<string, string>} query @param {string} [otherwise] the range where it says none @returns {Window}
 */
export function windowOf({ range, from, until }, otherwise = FIRST_RANGE) {
  const known = Object.hasOwn(RANGES, range ?? "") ? range : otherwise;
  const [begin, end] = [Number(from), Number(until)];
  return begin > 0 && end > begin ? { range: known, from: begin, until: end } : { range: known, from: 0, until: 0 };
}

/** The range of the history that has all of a window. @param {Window} shown @param {number} now_s */
export function historyRange({ range, from }, now_s) {
  if (!from) return range;
  return now_s - from <= FINE_S ? "1h" : "24h";
}

/**
 * Another part of the last day: wider or narrower by `factor`, and later by `part` of its width.
 * @param {[number, number]} span @param {{factor?: number, part?: number}} change @param {number} now_s
 * @returns {[number, number]}
 */
export function changed([from, until], { factor = 1, part = 0 }, now_s) {
  const width = Math.min(Math.max((until - from) * factor, NARROWEST_S), DAY_S);
  const middle = (from + until) / 2 + part * (until - from);
  const begin = Math.max(Math.min(middle - width / 2, now_s - width), now_s - DAY_S);
  return [Math.round(begin), Math.round(begin + width)];
}

/**
 * The window of the view, and what changes it.
 * @returns {{shown: Window, chooseRange: (range: string) => void, zoom: (from: number, until: number) => void}}
 */
export function useWindow() {
  const { query } = useRoute();
  const shown = windowOf(query, carried);
  useEffect(() => {
    carried = shown.range;
    if (!shown.from && shown.range !== FIRST_RANGE && query.range !== shown.range) setQuery({ range: shown.range });
  }, [shown.range, shown.from]);
  const chooseRange = (/** @type {string} */ range) => {
    carried = range;
    setQuery({ range: range === FIRST_RANGE ? "" : range, from: "", until: "" });
  };
  const zoom = (/** @type {number} */ from, /** @type {number} */ until) => {
    if (until - from < 1) return;
    setQuery({ from: Math.floor(from), until: Math.ceil(until) }, { push: true });
  };
  return { shown, chooseRange, zoom };
}
