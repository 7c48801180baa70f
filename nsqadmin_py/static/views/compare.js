// Several nsqds side by side: their figures, and the settings that differ.

import { at, get } from "../lib/api.js";
import { bytes, count, duration, latency, name, plain, rate } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { paths } from "../lib/route.js";
import { Failed, StateBadge } from "../parts/state.js";
import { Table } from "../parts/table.js";
import { isSilent, place, uptimeS } from "./node_parts.js";
import { usePolled } from "./polling.js";

const EVERY_MS = 10_000;
export const MOST_COMPARED = 6;

/** The nsqds that an address names. @param {string | undefined} text @returns {string[]} */
export function comparedIn(text) {
  return [...new Set((text ?? "").split(",").filter(Boolean))].slice(0, MOST_COMPARED);
}

/**
 * Settings that are not the same on all nsqds of which they are known; null is unknown.
 * @param {(Record<string, string> | null)[]} settings  of each nsqd
 * @returns {{key: string, values: (string | null)[]}[]}
 */
export function differences(settings) {
  const known = settings.filter(Boolean);
  const keys = [...new Set(known.flatMap((one) => Object.keys(one)))].sort();
  return keys
    .map((key) => ({ key, values: settings.map((one) => one && (one[key] ?? null)) }))
    .filter(({ values }) => new Set(values.filter((value, i) => settings[i])).size > 1);
}

/** @param {{nodes: string[], rows: Record<string, any>[], timeS: number}} props  `rows` are those of all nsqds */
export function Compare({ nodes, rows, timeS }) {
  const found = nodes.map((node) => rows.find((row) => row.node === node) ?? null);
  const load = async () => {
    const answers = await Promise.allSettled(found.map(detailsOf));
    return { details: answers.map(({ value }) => value ?? {}) };
  };
  const { data, message } = usePolled(nodes.join(), load, EVERY_MS);
  const details = data?.details.length === nodes.length ? data.details : nodes.map(() => null);
  const columns = useMemo(() => columnsOf("Figure", nodes, true), [nodes.join()]);
  const settingColumns = useMemo(() => columnsOf("Setting", nodes), [nodes.join()]);
  const differing = differences(details.map((one) => one?.settings ?? null));
  const unknown = nodes.filter((_, i) => details[i] && !details[i].settings);
  return html`<section class="section" aria-labelledby="compare">
    <div class="section-head"><h2 id="compare">Side by side</h2>
      <a class="button small" href=${paths.nodes()}>All nsqds</a></div>
    ${message && html`<${Failed} message=${message} />`}
    <${Table} caption="nsqds side by side" captionHidden columns=${columns} rows=${figuresOf(found, details, timeS)}
      rowKey=${(row) => row.title} />
    <h2>Settings that differ</h2>
    <${Table} caption="Settings that differ" captionHidden columns=${settingColumns} empty="The known settings are the same."
      rows=${differing.map(({ key, values }) => ({ title: key, cells: values.map(settingText) }))}
      rowKey=${(row) => row.title} />
    ${unknown.length > 0 && html`<p class="muted">Not known of ${unknown.map(plain).join(", ")}: they are told by nsqd-py
      only, and by none that does not answer.</p>`}
  </section>`;
}

/** What an nsqd itself is asked; nothing where there is none to ask. */
async function detailsOf(row) {
  return row && row.state !== "gone" ? get(`${at("nodes", row.node)}/details`) : {};
}

function columnsOf(title, nodes, number = false) {
  return [
    { key: "title", title },
    ...nodes.map((node, i) => ({ key: node, number, title: plain(node), cell: (row) => row.cells[i] ?? "" })),
  ];
}

function settingText(value) {
  if (value === null) return html`<span class="zero">unknown</span>`;
  return value === "" ? html`<span class="zero">empty</span>` : name(value);
}

const ROLE = ["Role", (row) => plain(row.role || "no standbys")];
// Of an nsqd: from its row, its details and the time of the figures.
const FIGURES = [
  ["State", (row) => html`<${StateBadge} state=${row.state} />`],
  ["Version", (row) => plain(row.version)],
  ["Health", (row) => plain(isSilent(row) ? "unknown" : row.health)],
  ["Uptime", (row, _, timeS) => duration(isSilent(row) ? null : uptimeS(row, timeS) * 1e9)],
  ["Zone, region", (row) => plain(place(row) || "none given")],
  ["Topics", (row) => count(row.topics)],
  ["Channels", (row) => count(row.channels)],
  ["Depth", (row) => count(row.depth)],
  ["In flight", (row) => count(row.in_flight)],
  ["Messages in", (row) => rate(row.message_rate)],
  ["Finished", (row) => rate(row.finish_rate)],
  ["Requeued", (row) => rate(row.requeue_rate)],
  ["Timed out", (row) => rate(row.timeout_rate)],
  ["Consumers", (row) => count(row.clients)],
  ["Answers in", (row) => (isSilent(row) ? "no answer" : `${count(row.took_ms)} ms`)],
  ["Memory", (_, details) => bytes(details?.memory_bytes)],
  ["Log on disk", (_, details) => bytes(details?.disk_bytes)],
  ["Lag of the event loop, 99 % up to", (_, details) => latency(details?.loop_lag_s && details.loop_lag_s * 1e9)],
  ["Processor time since start", (_, details) => duration(details?.cpu_s && details.cpu_s * 1e9)],
];

function figuresOf(rows, details, timeS) {
  const cellOf = (figure, i) => (rows[i] ? figure(rows[i], details[i], timeS) : "not known");
  const known = rows.some((row) => row?.role) ? [ROLE, ...FIGURES] : FIGURES;
  return known.map(([title, figure]) => ({ title, cells: rows.map((_, i) => cellOf(figure, i)) }));
}
