// Figures over time, as charts take them: what nsqadmin has kept, and what comes since. Pure.

/**
 * @typedef {object} Course
 * @property {string[]} metrics
 * @property {number} step_s
 * @property {number[]} quantiles that latency_0, latency_1, … are of
 * @property {(number | null)[][]} data times in s, then one list for each metric
 * @property {{times: number[], low: (number | null)[][], high: (number | null)[][]}} [band] of means: the lowest and
 *   highest value of each step, one list for each metric
 */

/**
 * The answer of /history.
 * @param {Course & {low?: (number | null)[][], high?: (number | null)[][]}} answer @returns {Course}
 */
export function courseOf({ low, high, ...course }) {
  return low && high ? { ...course, band: { times: /** @type {number[]} */ (course.data[0]), low, high } } : course;
}

/**
 * The lowest and highest values at these times; where they are not known, the value itself.
 * @param {Course} course @param {string} metric @returns {{low: (number | null)[], high: (number | null)[]} | null}
 */
export function bandOf({ metrics, data, band }, metric) {
  if (!band) return null;
  const place = metrics.indexOf(metric);
  const values = data[place + 1];
  const steps = new Map(band.times.map((time, i) => [time, i]));
  const at = (/** @type {(number | null)[]} */ list) =>
    values.map((value, i) => list[steps.get(/** @type {number} */ (data[0][i])) ?? -1] ?? value);
  return { low: at(band.low[place]), high: at(band.high[place]) };
}

/** @param {Record<string, any>} head @param {string} metric @param {number[]} quantiles @returns {number | null} */
function valueOf(head, metric, quantiles) {
  const rank = metric.startsWith("latency_") ? Number(metric.slice("latency_".length)) : -1;
  const value = rank < 0 ? head[metric] : head.latency?.find((one) => one.quantile === quantiles[rank])?.ns;
  return typeof value === "number" ? value : null;
}

/**
 * With the figures of now at its end. Steps between are as the last one, since nothing was told of them, where
 * `isUnbroken`; otherwise they are a gap. What is older than `range_s` goes.
 * @param {Course} course @param {Record<string, any>} head @param {number} time_s @param {number} range_s
 * @param {boolean} isUnbroken @returns {Course}
 */
export function extended(course, head, time_s, range_s, isUnbroken) {
  const { step_s, metrics, quantiles } = course;
  const now = Math.floor(time_s / step_s) * step_s;
  const times = /** @type {number[]} */ (course.data[0]);
  const last = times.at(-1) ?? now - step_s;
  if (now < last) return course;
  const values = metrics.map((metric) => valueOf(head, metric, quantiles));
  const missed = Math.min(Math.round((now - last) / step_s) - 1, Math.ceil(range_s / step_s));
  const from = times.findIndex((time) => time >= now - range_s);
  const kept = (/** @type {any[]} */ list) => list.slice(from < 0 ? list.length : from, now === last ? -1 : undefined);
  const between = Array.from({ length: Math.max(missed, 0) }, (_, i) => last + (i + 1) * step_s);
  const lists = course.data.slice(1).map((list, i) => {
    // The step before may have been read when its round was not yet in.
    const before = list.at(-1) ?? (isUnbroken ? list.at(-2) : null) ?? null;
    const old = kept(list);
    if (now !== last && old.length) old[old.length - 1] = before;
    return [...old, ...between.map(() => (isUnbroken ? before : null)), values[i]];
  });
  return { ...course, data: [[...kept(times), ...between, now], ...lists] };
}

/**
 * The part of it between two times, in s.
 * @param {Course} course @param {number} from @param {number} until @returns {Course}
 */
export function within(course, from, until) {
  const times = /** @type {number[]} */ (course.data[0]);
  const begin = times.findIndex((time) => time >= from);
  const end = times.findLastIndex((time) => time <= until) + 1;
  return { ...course, data: course.data.map((list) => (begin < 0 ? [] : list.slice(begin, end))) };
}

/** Lowest, highest and last of what is known. @param {(number | null)[]} values */
export function extremes(values) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && value !== undefined));
  if (!known.length) return null;
  const low = known.reduce((a, b) => Math.min(a, b));
  const high = known.reduce((a, b) => Math.max(a, b));
  return { low, high, last: known.at(-1) };
}

/** The value at a place, or the last that is known. @param {(number | null)[]} values @param {number | null} i */
export function valueAt(values, i) {
  return i === null ? values.findLast((value) => value !== null && value !== undefined) ?? null : values[i] ?? null;
}

/**
 * At most so many rows, newest first: of each the last time, and the mean, lowest and highest of each list in it.
 * @param {number[]} times @param {{values: (number | null)[], low: (number | null)[], high: (number | null)[]}[]} lists
 * @param {number} most
 * @returns {{time: number, cells: ({mean: number, low: number, high: number} | null)[]}[]}
 */
export function grouped(times, lists, most) {
  const every = Math.max(1, Math.ceil(times.length / most));
  const rows = [];
  for (let end = times.length; end > 0; end -= every) {
    const begin = Math.max(0, end - every);
    const part = (/** @type {(number | null)[]} */ list) => list.slice(begin, end);
    const cells = lists.map(({ values, low, high }) => cellOf(part(values), part(low), part(high)));
    rows.push({ time: times[end - 1], cells });
  }
  return rows;
}

/** @param {(number | null)[]} values @param {(number | null)[]} low @param {(number | null)[]} high */
function cellOf(values, low, high) {
  const known = /** @type {number[]} */ (values.filter((value) => value !== null && value !== undefined));
  if (!known.length) return null;
  const mean = known.reduce((a, b) => a + b) / known.length;
  return { mean, low: extremes(low)?.low ?? mean, high: extremes(high)?.high ?? mean };
}
