// Charts of a topic, channel, nsqd or the whole cluster: what nsqadmin has saved of it, and then live.

import { explain, get } from "../lib/api.js";
import { clock, count, duration, latency, short, timeText } from "../lib/format.js";
import { html, useEffect, useId, useMemo, useRef, useState } from "../lib/html.js";
import { METRICS, percentile } from "../lib/metrics.js";
import { extended, extremes, grouped, valueAt, within } from "./history.js";
import { Plot } from "./plot.js";
import { Failed, Loading } from "./state.js";
import { Table } from "./table.js";
import { RANGES, changed, historyRange, useWindow } from "./time_window.js";

const TABLE_ROWS = 30;
const LATENCIES = ["latency_0", "latency_1", "latency_2"];
// History is read again so often: it knows means of minutes, and what was missed.
const READ_AGAIN_EVERY_MS = 60_000;

// The charts there are: metrics of /history with the colours of their lines. Some are drawn only if they are asked for by
// name.
const CHARTS = [
  { key: "depth", title: "Messages", form: short, exact: count, isFilled: true, isWhole: true, least: 4, lines: {
    depth: "chart-1", in_flight: "chart-2", deferred: "chart-3" } },
  { key: "rates", title: "Messages per second", form: short, exact: short, isFilled: true, least: 1, lines: {
    message_rate: "chart-1", finish_rate: "chart-2", requeue_rate: "chart-4", timeout_rate: "chart-5" } },
  { key: "latency", title: "End-to-end latency", form: latency, exact: latency, second: 1e9, least: 1e6, lines: {
    latency_0: "chart-5", latency_1: "chart-3", latency_2: "chart-1" } },
  { key: "lag", title: METRICS.lag_messages.title, form: short, exact: count, isFilled: true, isWhole: true, least: 4,
    isAsked: true, lines: { lag_messages: "chart-4" } },
  { key: "lag_time", title: METRICS.lag_s.title, form: secondsOf, exact: secondsOf, second: 1, isFilled: true, least: 1,
    isAsked: true, lines: { lag_s: "chart-4" } },
];

function secondsOf(value) {
  return value === null || value === undefined ? latency(value) : value ? duration(value * 1e9) : "0 s";
}

/** The lines of a chart that are requested and known. @param {typeof CHARTS[0]} chart */
function linesOf(chart, metrics, quantiles) {
  return Object.entries(chart.lines).flatMap(([metric, paint]) => {
    const rank = LATENCIES.indexOf(metric);
    if (!metrics.includes(metric) || (rank >= 0 && quantiles[rank] === undefined)) return [];
    // The title of the chart says that they are per second.
    const label = rank < 0 ? METRICS[metric].title.replace("/s", "") : percentile(quantiles[rank]);
    return [{ metric, label, paint }];
  });
}

/** All metrics that the names mean: of a metric, of a chart ("latency"), or all. @param {string[]} [names] */
function metricsOf(names) {
  return CHARTS.flatMap(({ key, lines, isAsked }) =>
    Object.keys(lines).filter((metric) => (!names && !isAsked) || names?.includes(metric) || names?.includes(key)));
}

/** What was, and from now on what is. */
function useHistory(source, live, metrics, range) {
  const words = { ...source, metric: metrics.join(","), range };
  const key = JSON.stringify(words);
  const [read, setRead] = useState({ key: "", history: null, wrong: "" });
  const [turn, setTurn] = useState(0);
  const isBroken = live.state === "lost" || (live.state === "connecting" && live.time > 0);
  useEffect(() => {
    if (isBroken) return undefined;
    const stop = new AbortController();
    get("/history", words, { signal: stop.signal })
      .then((answer) => setRead({ key, history: answer, wrong: "" }))
      .catch((error) => stop.signal.aborted || setRead((old) => (
        old.history && old.key === key ? old : { key, history: null, wrong: explain(error) })));
    const timer = setTimeout(() => setTurn((n) => n + 1), READ_AGAIN_EVERY_MS);
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, turn, isBroken]);
  const now_s = useNow(live, read.history?.step_s);
  const grown = useRef({ read, history: null, isUnbroken: true });
  const history = useMemo(() => {
    if (grown.current.read !== read) grown.current = { read, history: read.history, isUnbroken: true };
    const { history: before, isUnbroken } = grown.current;
    if (isBroken) {
      grown.current.isUnbroken = false;
    } else if (before && live.state === "live" && now_s) {
      grown.current.history = extended(before, live.head, now_s, RANGES[range], isUnbroken);
    }
    return grown.current.history;
  }, [read, live, now_s]);
  const isOther = read.key !== key && !sameThing(read.key, key);
  return { history: isOther ? null : history, wrong: read.wrong, again: () => setTurn((n) => n + 1), now_s };
}

/** With another range, the old charts stay until the answer comes. @param {string} one @param {string} other */
function sameThing(one, other) {
  const namesOf = (/** @type {string} */ key) => {
    const { topic, channel, node, metric } = JSON.parse(key || "{}");
    return JSON.stringify([topic, channel, node, metric]);
  };
  return namesOf(one) === namesOf(other);
}

/** The time of nsqadmin, step by step, also where nothing changes and so nothing is shown. */
function useNow(live, step_s = 2) {
  const [, tick] = useState(0);
  const shown = useRef({ time: 0, at: 0 });
  if (live.time !== shown.current.time) shown.current = { time: live.time, at: performance.now() };
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), Math.max(step_s, 2) * 1000);
    return () => clearInterval(timer);
  }, [step_s]);
  if (!shown.current.time) return 0;
  const now_s = shown.current.time + (performance.now() - shown.current.at) / 1000;
  return Math.floor(now_s / step_s) * step_s;
}

/** For those who do not see it. */
function summaryOf(chart, lines, columns) {
  const parts = lines.map(({ label }, i) => {
    const found = extremes(columns[i]);
    if (!found) return `${label}: unknown`;
    const [last, low, high] = [found.last, found.low, found.high].map(chart.exact);
    return `${label}: now ${last}, lowest ${low}, highest ${high}`;
  });
  return `${chart.title}. ${parts.join(". ")}.`;
}

function Chart({ chart, lines, history, span, ...shared }) {
  const { cursor } = shared;
  const [hidden, setHidden] = useState([]);
  const [isTable, setTable] = useState(false);
  const columns = lines.map(({ metric }) => history.data[history.metrics.indexOf(metric) + 1] ?? []);
  const names = lines.map((line) => line.metric).join();
  const data = useMemo(() => [history.data[0], ...columns], [history, names]);
  const series = lines.map((line, i) => (
    { ...line, isFilled: i === 0 && chart.isFilled, hidden: hidden.includes(line.metric) }));
  const flip = (metric) =>
    setHidden(hidden.includes(metric) ? hidden.filter((one) => one !== metric) : [...hidden, metric]);
  return html`<figure class="chart">
    <figcaption class="chart-head">
      <h3>${chart.title}</h3>
      <span class="chart-time">${cursor === null ? "" : clock(history.data[0][cursor])}</span>
      <button type="button" class="button small quiet" aria-pressed=${isTable} onClick=${() => setTable(!isTable)}>
        ${isTable ? "Show as chart" : "Show as table"}</button>
    </figcaption>
    <div class="legend">
      ${series.map((line, i) => html`<button key=${line.metric} type="button" class="legend-item ${line.paint}"
          aria-pressed=${!line.hidden} title="Show or hide" data-metric=${line.metric}
          data-value=${valueAt(columns[i], null)} onClick=${() => flip(line.metric)}>
        <span class="swatch" aria-hidden="true"></span>${line.label}
        <span class="legend-value">${chart.exact(valueAt(columns[i], cursor))}</span>
      </button>`)}
    </div>
    ${isTable ? html`<${Numbers} chart=${chart} lines=${lines} columns=${columns} history=${history} />`
      : html`<${Plot} data=${data} span=${span} series=${series}
          form=${chart.form} isWhole=${chart.isWhole} second=${chart.second}
          least=${chart.least} ...${shared} summary=${summaryOf(chart, lines, columns)} />`}
  </figure>`;
}

/** The same as a table; each row covers several steps, with their mean, lowest and highest values. */
function Numbers({ chart, lines, columns, history }) {
  const form = history.step_s < 60 ? clock : timeText;
  const heads = useMemo(() => [
    { key: "time", title: "Until", cell: (row) => form(row.time) },
    ...lines.map(({ label }, i) => (
      { key: label, title: label, number: true, cell: (row) => cellText(chart, row.cells[i]) })),
  ], [chart, form, lines.map((line) => line.label).join()]);
  return html`<div class="chart-table">
    <${Table} caption=${chart.title} captionHidden isSmall columns=${heads} rows=${grouped(history.data[0], columns, TABLE_ROWS)}
      rowKey=${(row) => String(row.time)} />
  </div>`;
}

function cellText(chart, cell) {
  if (!cell) return chart.exact(null);
  const { mean, low, high } = cell;
  return low === high ? chart.exact(mean) : `${chart.exact(mean)} (${chart.exact(low)} to ${chart.exact(high)})`;
}

/**
 * @param {object} props
 * @param {{topic?: string, channel?: string, node?: string}} props.source whose metrics; `{}` is the cluster
 * @param {import("../lib/live.js").Live} props.live of the same
 * @param {string[]} [props.metrics] of /history, or "depth", "rates", "latency" for all of a chart
 * @param {string} [props.title]
 */
export function Charts({ source, live, metrics: names, title = "Over time" }) {
  const { shown: { from, until, ...ranged }, chooseRange, zoom } = useWindow();
  const isZoomed = from > 0;
  const range = historyRange({ from, until, ...ranged }, live.time);
  const [cursor, setCursor] = useState(/** @type {number | null} */ (null));
  const syncKey = useId();
  const metrics = metricsOf(names);
  const { history: whole, wrong, again, now_s } = useHistory(source, live, metrics, range);
  const history = useMemo(() => (whole && isZoomed ? within(whole, from, until) : whole), [whole, from, until]);
  const last = Math.max(now_s, whole?.data[0].at(-1) ?? now_s);
  const span = isZoomed ? [from, until] : [last - RANGES[range], last];
  const shown = history ? CHARTS.map((chart) => ({ chart, lines: linesOf(chart, metrics, history.quantiles) })) : [];
  return html`<section class="charts-section" aria-label=${title}>
    <header class="section-head">
      <h2>${title}</h2>
      <${Zoom} span=${span} isZoomed=${isZoomed} now_s=${last} zoom=${zoom} />
      <div class="segments" role="group" aria-label="Range">
        ${Object.keys(RANGES).map((key) => html`<button key=${key} type="button" class="segment"
          aria-pressed=${!isZoomed && key === ranged.range} onClick=${() => chooseRange(key)}>${key}</button>`)}
      </div>
    </header>
    ${wrong ? html`<${Failed} message=${wrong} retry=${again} />` : !history && html`<${Loading} what="history" />`}
    <div class="charts">
      ${shown.filter(({ lines }) => lines.length).map(({ chart, lines }) => html`<${Chart} key=${chart.key}
        chart=${chart} lines=${lines} history=${history} span=${span} syncKey=${syncKey}
        cursor=${cursor} onCursor=${setCursor} onZoom=${zoom}
        onZoomOut=${() => chooseRange(ranged.range)} />`)}
    </div>
  </section>`;
}

/** The same as a selection with the pointer, for the keyboard; and where it is. */
function Zoom({ span, isZoomed, now_s, zoom }) {
  const to = (change) => () => zoom(...changed(span, change, now_s));
  const text = isZoomed ? `${timeText(span[0])} to ${clock(span[1])}` : "";
  return html`<span class="zoom" role="group" aria-label="Zoom">
    <span class="muted" role="status">${text}</span>
    ${isZoomed && html`<button type="button" class="icon-button" aria-label="Earlier" title="Earlier"
      onClick=${to({ part: -0.5 })}>←</button>
    <button type="button" class="icon-button" aria-label="Later" title="Later" onClick=${to({ part: 0.5 })}>→</button>`}
    <button type="button" class="icon-button" aria-label="Zoom out" title="Zoom out"
      onClick=${to({ factor: 2 })}>−</button>
    <button type="button" class="icon-button" aria-label="Zoom in" title="Zoom in; or drag in a chart"
      onClick=${to({ factor: 0.5 })}>+</button>
  </span>`;
}
