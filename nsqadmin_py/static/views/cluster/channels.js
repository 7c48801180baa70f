// All channels of all topics in one list: by depth, by age, or only those with problems; and actions on several of them.

import { act, explain, whyNot } from "../../lib/api.js";
import { name } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths, setQuery, useTitle } from "../../lib/route.js";
import { ActionBar } from "../../parts/actions.js";
import { confirm } from "../../parts/dialog.js";
import { notify } from "../../parts/notices.js";
import { Save } from "../../parts/save.js";
import { Failed, Loading } from "../../parts/state.js";
import { Pager, Table } from "../../parts/table.js";
import { allRows } from "../shared/all_rows.js";
import { ChannelBadges, problemsColumn } from "../shared/badges.js";
import { AGE_COLUMNS, metricColumns } from "../shared/columns.js";
import { depthColumn, useDepthLines } from "../shared/depth_lines.js";
import { counted, held } from "../shared/lost_messages.js";
import { SearchField } from "../shared/rows.js";
import { TickAll, TickBox, ticked } from "../shared/tick_boxes.js";

const PAGE_ROWS = 50;
const SHOWN = ["message_rate", "finish_rate", "in_flight", "deferred", "requeue_rate", "timeout_rate", "clients"];
const SORTABLE = ["topic", "channel", "harm", "depth", "oldest_age_s", "drain_s", ...SHOWN];
const MOST_PAGES = 100_000;
const MOST_NAMED = 10;
const MOST_IN_A_LINE = 20;

// What can be done with several channels: the words of the button and of the notice, and whether messages are lost.
const BULK = [
  { action: "pause", label: "Pause", done: "paused" },
  { action: "unpause", label: "Resume", done: "resumed" },
  { action: "empty", label: "Empty", done: "emptied", isLoss: true },
  { action: "delete", label: "Delete", done: "deleted", isLoss: true },
];

/** @param {{query: Record<string, string>}} props */
export function ChannelsView({ query }) {
  useTitle("Channels");
  const words = wordsOf(query);
  const list = useLive("channels", words);
  const [chosen, setChosen] = useState(new Set());
  const lines = useDepthLines("channels", words);
  const rows = list.rows.filter((row) => chosen.has(keyOf(row)));
  return html`
    <header class="title-row"><h1 tabindex="-1">Channels</h1></header>
    <${List} list=${list} words=${words} query=${query} lines=${lines} chosen=${chosen} setChosen=${setChosen}
      bulk=${html`<${Bulk} rows=${rows} onDone=${() => setChosen(new Set())} />`} />
  `;
}

function keyOf({ topic, channel }) {
  return JSON.stringify([topic, channel]);
}

/** What the server is asked for. */
function wordsOf(query) {
  const page = Math.max(1, Number.parseInt(query.page, 10) || 1);
  const sort = SORTABLE.includes(query.sort) ? query.sort : "harm";
  const usual = ["topic", "channel"].includes(sort) ? "asc" : "desc";
  const order = ["asc", "desc"].includes(query.order) ? query.order : usual;
  const only = query.only === "problems" ? "problems" : "";
  const offset = (Math.min(page, MOST_PAGES) - 1) * PAGE_ROWS;
  return { search: query.search ?? "", only, sort, order, offset, limit: PAGE_ROWS };
}

function List({ list, words, query, lines, chosen, setChosen, bulk }) {
  const keys = list.rows.map(keyOf);
  const columns = useMemo(() => columnsOf(chosen, setChosen, keys, lines), [chosen, keys.join(), lines]);
  if (!list.time) return list.message ? html`<${Failed} message=${list.message} />` : html`<${Loading} />`;
  const lastRow = Math.floor(Math.max(0, list.head.total - 1) / PAGE_ROWS) * PAGE_ROWS;
  const goTo = (offset) => setQuery({ page: Math.min(offset, lastRow) / PAGE_ROWS + 1 }, { push: true });
  return html`
    <div class="section">
      <${SearchField} label="Search channels and topics" query=${query} status=${counted(list.head.total, "channel")}
          end=${html`<${Save} name="channels" columns=${columns} rows=${() => allRows("/channels", words, keyOf)} />`}>
        <label class="nowrap"><input type="checkbox" checked=${words.only === "problems"}
          onChange=${(event) => setQuery({ only: event.target.checked ? "problems" : "", page: "" })} />
          Only problems</label>
      <//>
    </div>
    ${bulk}
    <${Table} caption="Channels" captionHidden columns=${columns} rows=${list.rows} rowKey=${keyOf}
      sort=${words.sort} order=${words.order} onSort=${(sort, order) => setQuery({ sort, order, page: "" })}
      empty=${emptyText(words)} />
    <${Pager} total=${list.head.total} offset=${words.offset} limit=${PAGE_ROWS} onPage=${goTo} what="channels" />
  `;
}

function emptyText({ search, only }) {
  if (only) return search ? "No channel that matches has a problem." : "No channel has a problem.";
  return search ? "No channel matches." : "There is no channel.";
}

function topicCell({ topic }) {
  return html`<span class=${topic.length > MOST_IN_A_LINE ? "" : "nowrap"}>${name(topic)}</span>`;
}

function columnsOf(chosen, setChosen, keys, lines) {
  return [
    {
      key: "channel", title: "Channel", sortable: true, href: (row) => paths.channel(row.topic, row.channel),
      headBefore: html`<${TickAll} keys=${keys} chosen=${chosen} onChange=${setChosen} />`,
      before: (row) => html`<${TickBox} isTicked=${chosen.has(keyOf(row))} label=${`Select ${row.channel} of ${row.topic}`}
        onChange=${() => setChosen(ticked(chosen, keyOf(row)))} />`,
      cell: (row) => name(row.channel),
    },
    { key: "topic", title: "Topic", sortable: true, href: (row) => paths.topic(row.topic), cell: topicCell },
    problemsColumn((row) => html`<${ChannelBadges} row=${row} />`),
    depthColumn(lines),
    ...AGE_COLUMNS,
    ...metricColumns(SHOWN),
  ];
}

// ---- actions on several channels

function Bulk({ rows, onDone }) {
  const [isBusy, setBusy] = useState(false);
  const refusals = rows.map(({ topic }) => whyNot({ action: "administer", topic }));
  const why = whyNot() || refusals.find(Boolean) || (rows.length ? "" : "Select channels first.");
  const run = async (bulk) => {
    if (why || isBusy || !(await confirm({ ...questionOf(bulk, rows), curl: ordersOf(bulk, rows) }))) return;
    setBusy(true);
    await performAll(bulk, rows);
    setBusy(false);
    onDone();
  };
  return html`<${ActionBar} label="Actions on the selected channels">
    ${BULK.map((bulk) => html`<button key=${bulk.action} type="button" class="button ${bulk.isLoss ? "danger" : ""}"
      aria-disabled=${why ? "true" : undefined} aria-busy=${isBusy ? "true" : undefined} title=${why}
      onClick=${() => run(bulk)}>${bulk.label}</button>`)}
    <span class="muted" role="status">${counted(rows.length, "channel")} selected on this page</span>
  <//>`;
}

function ordersOf({ action }, rows) {
  return rows.map(({ topic, channel }) => ({ action, topic, channel }));
}

/** One question for all of them, with what each would lose. */
function questionOf({ label, isLoss }, rows) {
  const what = counted(rows.length, "channel");
  const total = rows.reduce((sum, row) => sum + held(row), 0);
  const lines = rows.slice(0, MOST_NAMED)
    .map((row) => `${counted(held(row), "message")} in ${row.channel} of ${row.topic}`);
  const more = rows.length > MOST_NAMED ? [`and those in ${counted(rows.length - MOST_NAMED, "other channel")}`] : [];
  return {
    title: `${label} ${what}?`,
    text: isLoss ? `${counted(total, "message")} will be lost, waiting, deferred or in flight.`
      : `Nothing is lost. ${namesOf(rows)}`,
    loses: isLoss ? [...lines, ...more] : [],
    button: `${label} ${what}`,
    phrase: isLoss ? what : "",
    danger: Boolean(isLoss),
  };
}

function namesOf(rows) {
  const names = rows.slice(0, MOST_NAMED).map((row) => `${row.channel} of ${row.topic}`);
  return [...names, ...(rows.length > MOST_NAMED ? ["…"] : [])].join(", ");
}

/** One after the other; says in one notice what failed. */
async function performAll({ action, done }, rows) {
  const errors = [];
  for (const order of ordersOf({ action }, rows)) {
    const { topic, channel } = order;
    try {
      const result = await act(order);
      errors.push(...result.errors.map((error) => `${channel} of ${topic}: ${error}`));
    } catch (error) {
      errors.push(`${channel} of ${topic}: ${explain(error)}`);
    }
  }
  const what = `${counted(rows.length, "channel")} ${rows.length === 1 ? "was" : "were"} ${done}`;
  if (errors.length) notify(`Not all of ${what}:`, "warning", errors);
  else notify(`${what}.`);
}
