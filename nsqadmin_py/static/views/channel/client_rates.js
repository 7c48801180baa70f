// Rates of clients. nsqd reports counts since each connected: two answers make a rate.

import { useRef } from "../../lib/html.js";

/** @typedef {{at: number, counts: number[]}} Sample `at` in s */

/**
 * The clients with their rates, null where there is only one answer yet, or a count fell: it has connected again.
 * @template {Record<string, any>} Row
 * @param {Map<string, Sample>} before  by key
 * @param {Row[]} rows @param {number} time  of the answer, in s
 * @param {(row: Row) => string} keyOf @param {Record<string, string>} names  of rates, and the counts that they are of
 * @returns {{rows: (Row & Record<string, number | null>)[], samples: Map<string, Sample>}}
 */
export function withRates(before, rows, time, keyOf, names) {
  const samples = new Map();
  const rated = rows.map((row) => {
    const key = keyOf(row);
    const counts = Object.values(names).map((name) => row[name]);
    const old = before.get(key);
    const passed_s = old ? time - old.at : 0;
    samples.set(key, { at: time, counts });
    const rates = Object.keys(names).map((name, i) => {
      const grown = old ? counts[i] - old.counts[i] : -1;
      return [name, passed_s > 0 && grown >= 0 ? grown / passed_s : null];
    });
    return { ...row, ...Object.fromEntries(rates) };
  });
  return { rows: rated, samples };
}

/**
 * The same for answers that come again and again.
 * @param {any[] | undefined} rows @param {number | undefined} time @param {(row: any) => string} keyOf
 * @param {Record<string, string>} names  a constant
 * @returns {any[]}
 */
export function useRates(rows, time, keyOf, names) {
  const known = useRef({ time: 0, rated: /** @type {any[]} */ ([]), samples: new Map() });
  if (rows && time && time !== known.current.time) {
    const { rows: rated, samples } = withRates(known.current.samples, rows, time, keyOf, names);
    known.current = { time, rated, samples };
  }
  return rows ? known.current.rated : [];
}
