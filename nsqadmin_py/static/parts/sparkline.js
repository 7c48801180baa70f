// A course of values as small as a word.

import { short } from "../lib/format.js";
import { html } from "../lib/html.js";

const WIDTH = 100;
const HEIGHT = 24;

/** Lines between the gaps, as a path. @param {(number | null)[]} values @param {number} most */
function pathOf(values, most) {
  const dx = WIDTH / Math.max(values.length - 1, 1);
  const parts = values.map((value, i) => {
    if (value === null || value === undefined) return "";
    const isBegin = i === 0 || values[i - 1] === null || values[i - 1] === undefined;
    const y = HEIGHT - 1.5 - (value / most) * (HEIGHT - 3);
    return `${isBegin ? "M" : "L"}${(i * dx).toFixed(1)} ${y.toFixed(1)}`;
  });
  return parts.join("");
}

/**
 * @param {{values?: (number | null)[] | null, label: string, max?: number}} props
 *   `label` says of what it is, `max` is the top
 */
export function Sparkline({ values, label, max }) {
  const known = (values ?? []).filter((value) => value !== null && value !== undefined);
  if (!known.length) return html`<span class="sparkline none" role="img" aria-label="${label}: unknown"></span>`;
  const highest = Math.max(...known);
  const text = `${label}: first ${short(known[0])}, last ${short(known.at(-1))}, highest ${short(highest)}`;
  return html`<svg class="sparkline" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img"
      aria-label=${text}>
    <title>${text}</title>
    <path d=${pathOf(values, Math.max(max ?? highest, 1e-9))} vector-effect="non-scaling-stroke" />
  </svg>`;
}
