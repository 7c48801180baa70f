// One chart, drawn by uPlot: its size is that of its box, its colours are those of the theme.

import { axisTime } from "../lib/format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { useTheme } from "../lib/theme.js";

const AXIS_PX = 52;
const AXIS_GAP_PX = 6;
const AXIS_FONT = "11px";
const FONT = `${AXIS_FONT} Inter`;
const HEADROOM = 1.08;
// A shorter selection is a click.
const LEAST_ZOOM_PX = 6;

/** @param {string} name of a variable in style.css */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/**
 * As wide as its longest label, which would lose its beginning otherwise.
 * @param {CanvasRenderingContext2D} canvas @param {string} font @param {string[] | null} labels
 */
export function axisWidth(canvas, font, labels) {
  canvas.save();
  canvas.font = font;
  const widest = Math.max(0, ...(labels ?? []).map((label) => canvas.measureText(label).width / devicePixelRatio));
  canvas.restore();
  return Math.max(AXIS_PX, Math.ceil(widest) + 2 * AXIS_GAP_PX);
}

/** From nothing to a little more than the highest. @param {number | null} most @param {number} least */
function heightOf(most, least) {
  return /** @type {[number, number]} */ ([0, Math.max(most ?? 0, least) * HEADROOM]);
}

/** Steps between the lines of the grid: whole numbers from 1 on. */
function wholeSteps() {
  return Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();
}

/**
 * Steps between the lines of the grid for times: those of a clock, such as 5 min and not 500 s.
 * @param {number} second  in the unit of the values
 */
export function timeSteps(second) {
  const parts = [-6, -5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((n) => Number(`${n}e${power}`)));
  const minutes = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 2880, 7200, 14_400];
  return [...parts, 1, 2, 5, 10, 15, 30, ...minutes.map((n) => 60 * n)].map((n) => n * second);
}

/** @param {string} paint */
function faint(paint) {
  return `color-mix(in srgb, ${colour(paint)} 14%, transparent)`;
}

/** Reports which part has been selected with the pointer. @param {any} u @param {PlotProps} props */
function reportZoom(u, { onZoom }) {
  const { left, width } = u.select;
  if (width < LEAST_ZOOM_PX) return;
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onZoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
}

/** The pointer's moves are shared with the other charts, and a selection is not: it would be shown by each of them. */
function isShared(type) {
  return type === "mousemove" || type === "mouseleave";
}

/** @param {PlotProps} props @param {number} width @param {{current: PlotProps}} latest */
function optionsOf({ series, form, isWhole, second, least, syncKey }, box, latest) {
  const axis = {
    stroke: colour("muted"), font: `${AXIS_FONT} ${getComputedStyle(document.body).fontFamily}`,
    grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false },
  };
  return {
    width: box.clientWidth, height: box.clientHeight, legend: { show: false }, padding: [8, 20, 0, 0],
    cursor: {
      sync: { key: syncKey, filters: { pub: isShared } }, y: false, drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => latest.current.onZoomOut() },
      points: { size: 7, fill: (u, i) => u.series[i].stroke(u, i) },
    },
    scales: {
      x: { time: true, range: () => latest.current.span },
      y: { range: (u, low, high) => heightOf(high, least) },
    },
    axes: [
      { ...axis, size: 26, gap: 4, space: 70,
        values: (u, splits, i, space, step) => splits.map((s) => axisTime(s, step)) },
      { ...axis, size: (u, labels) => axisWidth(u.ctx, u.axes[1].font[0], labels), gap: AXIS_GAP_PX, space: 28, values: (u, splits) => splits.map((value) => (value ? form(value) : "0")),
        ...(isWhole ? { incrs: wholeSteps() } : second ? { incrs: timeSteps(second) } : {}) },
    ],
    series: [{}, ...series.map(({ label, paint, isFilled }) => ({
      label, stroke: colour(paint), width: 1.5, points: { show: false },
      fill: isFilled ? faint(paint) : undefined,
    }))],
    hooks: {
      setCursor: [(u) => latest.current.onCursor(u.cursor.idx ?? null)],
      setSelect: [(u) => reportZoom(u, latest.current)],
    },
  };
}

/** Whether the font of the page is here: it comes after the first metrics, and a canvas does not draw itself again. */
function useFont() {
  const [hasFont, setFont] = useState(document.fonts.check(FONT));
  useEffect(() => {
    let isOver = false;
    if (!hasFont) document.fonts.load(FONT).then(() => isOver || setFont(true));
    return () => { isOver = true; };
  }, []);
  return hasFont;
}

/** uPlot, which is loaded with the first chart; null until then. */
function useLibrary() {
  const [found, setFound] = useState({ uPlot: null });
  useEffect(() => {
    let isOver = false;
    import("../vendor/uplot.js").then(({ default: uPlot }) => isOver || setFound({ uPlot }));
    return () => { isOver = true; };
  }, []);
  return found.uPlot;
}

/**
 * @typedef {object} PlotProps
 * @property {(number | null)[][]} data times in s, then the values of each series
 * @property {[number, number]} span from when to when, in s
 * @property {{label: string, paint: string, isFilled?: boolean, hidden?: boolean}[]} series
 * @property {(n: number) => string} form of the values
 * @property {boolean} [isWhole] the values are whole numbers
 * @property {number} [second] the values are times, of which this one is a second
 * @property {number} least the top of the chart where all values are lower
 * @property {string} syncKey charts with the same one share their cursor
 * @property {(i: number | null) => void} onCursor
 * @property {(from: number, until: number) => void} onZoom gets the times of a selected part, in s
 * @property {() => void} onZoomOut
 * @property {string} summary for those who do not see it
 */

/** @param {PlotProps} props */
export function Plot(props) {
  const { data, span, series, summary } = props;
  const box = useRef(null);
  const plot = useRef(null);
  const latest = useRef(props);
  latest.current = props;
  const theme = useTheme();
  const hasFont = useFont();
  const labels = series.map((one) => one.label).join("\n");

  const uPlot = useLibrary();

  useLayoutEffect(() => {
    if (!uPlot) return undefined;
    const options = optionsOf(latest.current, box.current, latest);
    const made = new uPlot(options, latest.current.data, box.current);
    plot.current = made;
    const observer = new ResizeObserver(() => {
      const { clientWidth: width, clientHeight: height } = box.current ?? {};
      if (width && (width !== made.width || height !== made.height)) made.setSize({ width, height });
    });
    observer.observe(box.current);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme, labels, hasFont, uPlot]);

  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    series.forEach(({ hidden }, i) => {
      if (made.series[i + 1].show === Boolean(hidden)) made.setSeries(i + 1, { show: !hidden });
    });
    made.setData(data);
  }, [data, span[0], span[1], theme, labels, hasFont, uPlot, series.map((one) => (one.hidden ? 1 : 0)).join("")]);

  return html`<div class="plot" ref=${box} role="img" aria-label=${summary}></div>`;
}
