// What is wrong in the cluster: where, since when, and what to do. The first thing on the first screen.

import { count, iso, name, plain } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths } from "../../lib/route.js";
import { Save } from "../../parts/save.js";
import { Badge } from "../../parts/state.js";
import { Dismiss, since } from "../node/node_parts.js";

// Of a longer list, the worst; the others on request.
const FIRST = 5;
const LOOKUP_KINDS = ["lookup_failed", "no_lookup"];

/** The list that has everything that a row of many problems is about. */
function listOf({ kind, topic, channel }) {
  if (LOOKUP_KINDS.includes(kind)) return paths.lookup();
  if (channel) return `${paths.channels()}?only=problems`;
  return topic ? paths.topics() : paths.nodes();
}

/** The address of the page that shows a problem. */
function hrefOf({ kind, topic, channel, node }) {
  if (kind === "dead_letters") return paths.deadLetters(topic);
  if (LOOKUP_KINDS.includes(kind)) return paths.lookup();
  if (channel) return paths.channel(topic, channel);
  if (topic) return paths.topic(topic);
  return node ? paths.node(node) : paths.nodes();
}

/** The name of what it is about. */
function subjectOf({ kind, topic, channel, node }) {
  if (channel) return html`${name(topic)} / ${name(channel)}`;
  if (topic) return name(topic);
  if (!node) return "cluster";
  return html`${LOOKUP_KINDS.includes(kind) ? "nsqlookupd" : "nsqd"} ${name(node)}`;
}

function sinceText({ since_s: sinceS, is_since_exact: isExact }) {
  return isExact ? `since ${since(sinceS)}` : `since ${since(sinceS)} or earlier`;
}

export function Attention() {
  const { head, rows, time } = useLive("attention");
  const [isAll, setAll] = useState(false);
  if (!time) return null;
  if (!rows.length) return html`<p class="attention-none"><span aria-hidden="true">✓</span> Nothing needs attention.</p>`;
  const shown = isAll ? rows : rows.slice(0, FIRST);
  return html`<section class="panel attention" aria-labelledby="attention">
    <div class="section-head"><h2 id="attention">Attention</h2>
      <span class="muted grow">${countsText(head)}</span>
      <${Save} name="attention" columns=${SAVED} rows=${() => rows.flatMap(problemsOf)} /></div>
    <ul class="attention-list">
      ${shown.map((row) => html`<${Item} key=${keyOf(row)} row=${row} />`)}
    </ul>
    ${rows.length > FIRST && html`<button type="button" class="button small quiet" aria-expanded=${isAll}
      onClick=${() => setAll(!isAll)}>${isAll ? "Show the worst only" : `Show ${moreText(head, rows)}`}</button>`}
  </section>`;
}

// What a file has of each problem.
const SAVED = [
  { key: "severity", title: "Severity" },
  { key: "word", title: "Problem", savedAs: "problem" },
  { key: "topic", title: "Topic" },
  { key: "channel", title: "Channel" },
  { key: "node", title: "nsqd" },
  { key: "text", title: "What is wrong" },
  { key: "advice", title: "Advice" },
  { key: "since", title: "Since", saved: (row) => iso(row.since_s) },
];

/** The problems of a row that has many; one more line counts those that nsqadmin does not list. */
function problemsOf(row) {
  if (row.count === 1) return [row];
  const listed = row.problems.map((problem) => ({ ...row, ...problem }));
  const more = row.count - listed.length;
  const rest = { ...row, topic: "", channel: "", node: "", text: `${count(more)} more, which are not listed` };
  return more > 0 ? [...listed, rest] : listed;
}

function keyOf({ kind, topic, channel, node, cause, count: number }) {
  return (number > 1 ? [kind, cause] : [kind, topic, channel, node]).join("|");
}

function countsText({ errors, warnings, infos }) {
  const parts = [[errors, "error"], [warnings, "warning"]].filter(([number]) => number > 0);
  const texts = parts.map(([number, word]) => `${count(number)} ${word}${number === 1 ? "" : "s"}`);
  return [...texts, infos > 0 && `${count(infos)} planned`].filter(Boolean).join(", ");
}

function moreText({ total }, rows) {
  return total > rows.length ? `the worst ${count(rows.length)} of ${count(total)}` : `all ${count(total)}`;
}

function Item({ row }) {
  return html`<li class="attention-item">
    <${Badge} kind=${row.severity === "info" ? "muted" : row.severity}>${row.word}<//>
    <div class="attention-text">
      <a href=${row.count > 1 ? listOf(row) : hrefOf(row)}>${row.count > 1 ? row.places : subjectOf(row)}</a>${row.count > 1 ? "" : " "}
      <span>${row.count > 1 && ": "}${plain(row.text)}.</span>${" "}
      <span class="muted nowrap">${sinceText(row)}</span>
      <p class="muted">${row.advice}</p>
      ${row.count > 1 && html`<${Members} row=${row} />`}
    </div>
    ${["node_gone", "node_stopped"].includes(row.kind) && row.count === 1 && html`<${Dismiss} node=${row.node} />`}
  </li>`;
}

/** The problems of a row that has many, the worst first. */
function Members({ row }) {
  const { problems, kind, count: number } = row;
  return html`<details>
    <summary>${problems.length < number ? `The worst ${count(problems.length)} of ${count(number)}` : `All ${count(number)}`}</summary>
    <ul>${problems.map((one) => html`<li key=${[one.topic, one.channel, one.node].join("|")}>
      <a href=${hrefOf({ ...one, kind })}>${subjectOf({ ...one, kind })}</a> ${plain(one.text)}.</li>`)}</ul>
  </details>`;
}
