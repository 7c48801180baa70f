// A course of values as small as a word.

import { short } from "../lib/format.js";
import { html } from "../lib/html.js";

const WIDTH = 100;
const HEIGHT = 24;

/**
 * How high a value is, 0 to 1. Lines below each other share a scale; it is logarithmic, so that 3 differs from none, and
 * 4,350 from 3.
 * @param {number} value @param {number} most @param {boolean} isShared
 */
export function heightOf(value, most, isShared) {
  return isShared ? Math.log1p(Math.max(value, 0)) / Math.log1p(most) : value / most;
}

/** Points between the gaps, as texts "x y". */
function runsOf(values, most, isShared) {
  const dx = WIDTH / Math.max(values.length - 1, 1);
  /** @type {string[][]} */
  const runs = [[]];
  for (const [i, value] of values.entries()) {
    if (value === null || value === undefined) {
      if (runs.at(-1).length) runs.push([]);
    } else {
      const y = HEIGHT - 1.5 - heightOf(value, most, isShared) * (HEIGHT - 3);
      runs.at(-1).push(`${(i * dx).toFixed(1)} ${y.toFixed(1)}`);
    }
  }
  return runs.filter((run) => run.length);
}

/** @param {string[]} run */
function areaOf(run) {
  const [left, right] = [run[0], run.at(-1)].map((point) => point.split(" ")[0]);
  return `M${left} ${HEIGHT}L${run.join("L")}L${right} ${HEIGHT}Z`;
}

/**
 * @param {{values?: (number | null)[] | null, label: string, max?: number}} props
 *   `label` says of what it is; `max` is the highest value of all lines that are below each other
 */
export function Sparkline({ values, label, max }) {
  const known = (values ?? []).filter((value) => value !== null && value !== undefined);
  if (!known.length) return html`<span class="sparkline none" role="img" aria-label="${label}: unknown"></span>`;
  const highest = Math.max(...known);
  const text = `${label}: first ${short(known[0])}, last ${short(known.at(-1))}, highest ${short(highest)}`;
  const runs = runsOf(values, Math.max(max ?? 0, highest, 1e-9), max !== undefined);
  return html`<svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
      aria-label=${text}>
    <title>${text}</title>
    <path class="sparkline-area" d=${runs.map(areaOf).join("")} />
    <path d=${runs.map((run) => `M${run.join("L")}`).join("")} vector-effect="non-scaling-stroke" />
  </svg>`;
}
