// The list of topics: what the cluster does, and where it needs attention.

import { count, name } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths, setQuery, useTitle } from "../../lib/route.js";
import { ActionBar } from "../../parts/actions.js";
import { Save } from "../../parts/save.js";
import { Failed, Loading } from "../../parts/state.js";
import { Pager, Table } from "../../parts/table.js";
import { allRows } from "../shared/all_rows.js";
import { TopicBadges, problemsColumn } from "../shared/badges.js";
import { metricColumns } from "../shared/columns.js";
import { depthColumn, useDepthLines } from "../shared/depth_lines.js";
import { SearchField } from "../shared/rows.js";
import { CreateTopic } from "../topic/create.js";
import { Attention } from "./attention.js";
import { ClusterTiles } from "./cluster_tiles.js";
import { FirstSteps } from "./first_steps.js";
import { IdleTopics } from "./idle.js";

const PAGE_ROWS = 50;
const MOST_PAGES = 100_000;
const SHOWN = ["message_rate", "finish_rate", "in_flight", "deferred", "requeue_rate", "timeout_rate"];
const NOTHING_FOUND = "No topic or channel matches.";
const SORTABLE = ["topic", "harm", "depth", ...SHOWN, "channels", "clients"];

/** @param {{query: Record<string, string>}} props */
export function TopicsView({ query }) {
  useTitle("Topics");
  const words = wordsOf(query);
  const list = useLive("topics", words);
  const lines = useDepthLines("topics", words);
  const columns = useMemo(() => columnsOf(lines), [lines]);
  return html`
    <header class="title-row">
      <h1 tabindex="-1">Topics</h1>
      <${ActionBar}><${CreateTopic} /><//>
    </header>
    <${Attention} />
    <${ClusterTiles} />
    <${List} list=${list} words=${words} columns=${columns} />
    <${IdleTopics} />
  `;
}

/** What the server is asked for. */
function wordsOf(query) {
  const page = Math.min(Math.max(1, Number.parseInt(query.page, 10) || 1), MOST_PAGES);
  const sort = SORTABLE.includes(query.sort) ? query.sort : "harm";
  const usual = sort === "topic" ? "asc" : "desc";
  const order = ["asc", "desc"].includes(query.order) ? query.order : usual;
  return { search: query.search ?? "", sort, order, offset: (page - 1) * PAGE_ROWS, limit: PAGE_ROWS };
}

function columnsOf(lines) {
  return [
    { key: "topic", title: "Topic", sortable: true, href: (row) => paths.topic(row.topic), cell: (row) => name(row.topic) },
    problemsColumn((row) => html`<${TopicBadges} row=${row} />`),
    depthColumn(lines),
    ...metricColumns(SHOWN),
    ...metricColumns(["channels", "clients"]),
  ];
}

function List({ list, words, columns }) {
  const isEmpty = list.time > 0 && list.head.total === 0 && !words.search;
  if (isEmpty) return html`<${FirstSteps} />`;
  if (!list.time) return list.message ? html`<${Failed} message=${list.message} />` : html`<${Loading} />`;
  // From a page behind the last one, back to that.
  const lastRow = Math.floor(Math.max(0, list.head.total - 1) / PAGE_ROWS) * PAGE_ROWS;
  const goTo = (offset) => goToRow(Math.min(offset, lastRow));
  const onSort = (sort, order) => setQuery({ sort, order, page: "" });
  return html`
    <div class="section">
      <${SearchField} label="Search topics and channels" query=${words}
        status=${foundText(list.head.total, words.search)}
        end=${html`<${Save} name="topics" columns=${columns} rows=${() => allRows("/topics", words, (row) => row.topic)} />`} />
    </div>
    <${Table} caption="Topics" captionHidden columns=${columns} rows=${list.rows} rowKey=${(row) => row.topic}
      sort=${words.sort} order=${words.order} onSort=${onSort}
      empty=${list.head.total ? "There is nothing on this page." : NOTHING_FOUND} />
    <${Pager} total=${list.head.total} offset=${words.offset} limit=${PAGE_ROWS} onPage=${goTo} what="topics" />
  `;
}

function goToRow(offset) {
  setQuery({ page: offset ? offset / PAGE_ROWS + 1 : "" }, { push: true });
}

function foundText(total, search) {
  const topics = `${count(total)} ${total === 1 ? "topic" : "topics"}`;
  return search ? `${topics} with “${search}” in their name or a channel’s` : topics;
}
