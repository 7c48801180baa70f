// A line of values as small as a word. It is drawn while it is in the window.

import { short } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";

const WIDTH = 64;
const HEIGHT = 18;
const STROKE = 1.5;
// The top of the scale where all values are lower: a single message is no mountain.
const LEAST_TOP = 10;
// Less in all means is drawn as nothing.
const LEAST_DRAWN = 0.5;
// Before it is scrolled into the window.
const DRAWN_AHEAD = "200px";

/** What is notified whether an element is in the window. @type {WeakMap<Element, (isSeen: boolean) => void>} */
const watched = new WeakMap();
const observer = new IntersectionObserver(
  (entries) => { for (const entry of entries) watched.get(entry.target)?.(entry.isIntersecting); },
  { rootMargin: DRAWN_AHEAD },
);

/** Whether an element is in the window, or near. @returns {[{current: Element | null}, boolean]} */
function useSeen() {
  const box = useRef(/** @type {Element | null} */ (null));
  const [isSeen, setSeen] = useState(false);
  useEffect(() => {
    const element = box.current;
    watched.set(element, setSeen);
    observer.observe(element);
    return () => observer.unobserve(element);
  }, []);
  return [box, isSeen];
}

/** @param {number | null | undefined} value @returns {value is number} */
function isKnown(value) {
  return value !== null && value !== undefined;
}

/**
 * The points of a line, from the bottom left; gaps part it. Pure.
 * @param {(number | null)[]} values @returns {string[][]} "x y" of each run of known values
 */
export function runsOf(values) {
  const top = Math.max(LEAST_TOP, ...values.filter(isKnown));
  const dx = (WIDTH - STROKE) / Math.max(values.length - 1, 1);
  /** @type {string[][]} */
  const runs = [[]];
  for (const [index, value] of values.entries()) {
    if (isKnown(value)) {
      const y = HEIGHT - STROKE / 2 - (value / top) * (HEIGHT - STROKE);
      runs.at(-1).push(`${(STROKE / 2 + index * dx).toFixed(1)} ${y.toFixed(1)}`);
    } else if (runs.at(-1).length) {
      runs.push([]);
    }
  }
  return runs.filter((run) => run.length > 0);
}

/** @param {string[]} run */
function areaOf(run) {
  const [left, right] = [run[0], run.at(-1)].map((point) => point.split(" ")[0]);
  return `M${left} ${HEIGHT}L${run.join("L")}L${right} ${HEIGHT}Z`;
}

/**
 * Nothing where it was always zero, or is unknown.
 * @param {{values?: (number | null)[], label: string}} props `label` says of what and when: "Depth over 10 min"
 */
export function Sparkline({ values = [], label }) {
  const [box, isSeen] = useSeen();
  const known = values.filter(isKnown);
  const highest = Math.max(0, ...known);
  return html`<span class="sparkline" ref=${box}>${isSeen && highest >= LEAST_DRAWN && html`<${Line} values=${values}
    text=${`${label}: first ${short(known[0])}, highest ${short(highest)}, last ${short(known.at(-1))}`} />`}</span>`;
}

function Line({ values, text }) {
  const runs = runsOf(values);
  return html`<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${text}>
    <title>${text}</title>
    <path class="sparkline-area" d=${runs.map(areaOf).join("")} />
    <path d=${runs.map((run) => `M${run.join("L")}`).join("")} />
  </svg>`;
}
