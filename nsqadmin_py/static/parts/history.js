// Metrics over time, as charts take them: what nsqadmin has saved, and what comes since. Pure.

/**
 * @typedef {object} History
 * @property {string[]} metrics
 * @property {number} step_s
 * @property {number[]} quantiles that latency_0, latency_1, … are of
 * @property {(number | null)[][]} data times in s, then one list for each metric
 */

/** @param {Record<string, any>} head @param {string} metric @param {number[]} quantiles @returns {number | null} */
function valueOf(head, metric, quantiles) {
  const rank = metric.startsWith("latency_") ? Number(metric.slice("latency_".length)) : -1;
  const value = rank < 0 ? head[metric] : head.latency?.find((one) => one.quantile === quantiles[rank])?.ns;
  return typeof value === "number" ? value : null;
}

/**
 * With the metrics of now at its end. Steps between are as the last one, since nothing was shown of them, where
 * `isUnbroken`; otherwise they are a gap. What is older than `range_s` goes.
 * @param {History} history @param {Record<string, any>} head @param {number} time_s @param {number} range_s
 * @param {boolean} isUnbroken @returns {History}
 */
export function extended(history, head, time_s, range_s, isUnbroken) {
  const { step_s, metrics, quantiles } = history;
  const now = Math.floor(time_s / step_s) * step_s;
  const times = /** @type {number[]} */ (history.data[0]);
  const last = times.at(-1) ?? now - step_s;
  if (now < last) return history;
  const values = metrics.map((metric) => valueOf(head, metric, quantiles));
  const missed = Math.min(Math.round((now - last) / step_s) - 1, Math.ceil(range_s / step_s));
  const from = times.findIndex((time) => time >= now - range_s);
  const inRange = (/** @type {any[]} */ list) => list.slice(from < 0 ? list.length : from, now === last ? -1 : undefined);
  const between = Array.from({ length: Math.max(missed, 0) }, (_, i) => last + (i + 1) * step_s);
  const lists = history.data.slice(1).map((list, i) => {
    // The step before may have been read when its round was not yet in.
    const before = list.at(-1) ?? (isUnbroken ? list.at(-2) : null) ?? null;
    const old = inRange(list);
    if (now !== last && old.length) old[old.length - 1] = before;
    return [...old, ...between.map(() => (isUnbroken ? before : null)), values[i]];
  });
  return { ...history, data: [[...inRange(times), ...between, now], ...lists] };
}

/**
 * The part of it between two times, in s.
 * @param {History} history @param {number} from @param {number} until @returns {History}
 */
export function within(history, from, until) {
  const times = /** @type {number[]} */ (history.data[0]);
  const begin = times.findIndex((time) => time >= from);
  const end = times.findLastIndex((time) => time <= until) + 1;
  return { ...history, data: history.data.map((list) => (begin < 0 ? [] : list.slice(begin, end))) };
}

/** Lowest, highest and last of what is known. @param {(number | null)[]} values */
export function extremes(values) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && value !== undefined));
  if (!known.length) return null;
  const low = known.reduce((a, b) => Math.min(a, b));
  const high = known.reduce((a, b) => Math.max(a, b));
  return { low, high, last: known.at(-1) };
}

/** The value at an index, or the last that is known. @param {(number | null)[]} values @param {number | null} i */
export function valueAt(values, i) {
  return i === null ? values.findLast((value) => value !== null && value !== undefined) ?? null : values[i] ?? null;
}

/**
 * At most `most` rows, newest first: of each the last time, and the mean, lowest and highest of each list in it.
 * @param {number[]} times @param {(number | null)[][]} lists
 * @param {number} most
 * @returns {{time: number, cells: ({mean: number, low: number, high: number} | null)[]}[]}
 */
export function grouped(times, lists, most) {
  const every = Math.max(1, Math.ceil(times.length / most));
  const rows = [];
  for (let end = times.length; end > 0; end -= every) {
    const begin = Math.max(0, end - every);
    const part = (/** @type {(number | null)[]} */ list) => list.slice(begin, end);
    const cells = lists.map((values) => cellOf(part(values)));
    rows.push({ time: times[end - 1], cells });
  }
  return rows;
}

/** @param {(number | null)[]} values */
function cellOf(values) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && value !== undefined));
  if (!known.length) return null;
  const mean = known.reduce((a, b) => a + b) / known.length;
  const { low, high } = extremes(known);
  return { mean, low, high };
}
