// The messages that the logs of a topic have, also those that are finished: of all nsqds in one table, the newest first.

import { at } from "../../lib/api.js";
import { count, name, plain, timeText } from "../../lib/format.js";
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths, setQuery, useTitle } from "../../lib/route.js";
import { FormField } from "../../parts/dialog.js";
import { Failed, Loading } from "../../parts/state.js";
import { Table } from "../../parts/table.js";
import { isEphemeral } from "../shared/badges.js";
import { counted } from "../shared/lost_messages.js";
import { MissingTopic } from "../topic/missing.js";
import { TopicTabs } from "../topic/topic_tabs.js";
import { Message } from "./message.js";
import { preview } from "./message_body.js";
import { FilterFields, filtersIn, isFiltered } from "./message_filters.js";
import { MessageSearch, progressOf, shownOf, unfinished } from "./message_search.js";

const COUNTS = ["10", "50", "200", "1000"];
const FIRST_COUNT = "50";
const STARTS = [
  { value: "latest", label: "The latest" },
  { value: "until", label: "Up to a time" },
  { value: "from", label: "From a time on" },
  { value: "before", label: "Up to a number" },
  { value: "seq", label: "From a number on" },
  { value: "earliest", label: "The oldest that are kept" },
];
// Where a search begins, in the query of the address: only one of them.
const NO_START = { from: "", until: "", seq: "", before: "" };
const FILTER_HELP = "A JSON path is compared with =, !=, <, <=, >, >= or ~ (contains), as in $.items[*].sku ~ A1; alone, it " +
  "finds the messages that have it. Regular expressions are those of RE2.";
const ALL = { value: "", label: "All" };

/** @param {{params: {topic: string}, query: Record<string, string>}} props */
export function MessagesView({ params, query }) {
  const { topic } = params;
  useTitle(`Messages of ${topic}`);
  const live = useLive("topic", { topic });
  return html`
    <nav class="crumbs" aria-label="Where this is">
      <a href=${paths.topics()}>Topics</a> / <a href=${paths.topic(topic)}>${name(topic)}</a>
    </nav>
    <header class="title-row"><h1 tabindex="-1">Messages of ${name(topic)}</h1></header>
    ${live.state === "gone" ? html`<${MissingTopic} topic=${topic} />` : html`
      <${TopicTabs} topic=${topic} current="messages" />
      ${isEphemeral(topic) ? html`<p>An ephemeral topic has no log. The page of a channel shows the messages that wait in it.</p>`
        : html`<${Browser} topic=${topic} live=${live} query=${query} />`}
    `}
  `;
}

function Browser({ topic, live, query }) {
  const asked = askedIn(query);
  const queueNodes = live.rows.filter((row) => !row.channel && row.state !== "gone").map((row) => row.node);
  const nodes = query.node ? [query.node] : live.time ? queueNodes : null;
  const { known, search } = useSearch(topic, asked, nodes);
  return html`
    <${SearchForm} key=${JSON.stringify(asked)} query=${query} nodes=${queueNodes} isBusy=${known?.isBusy} />
    ${known ? html`<${Found} topic=${topic} asked=${asked} known=${known} search=${search} />`
      : html`<${Loading} what="messages" />`}
  `;
}

/** What is asked, from the address. */
function askedIn(query) {
  const start = startOf(query);
  const from = start === "latest" || start === "earliest" ? { from: start } : { [start]: query[start] };
  const isBack = ["latest", "until", "before"].includes(start);
  return { start: from, filters: filtersIn(query), isBack, requested: Number(query.limit || FIRST_COUNT), node: query.node ?? "" };
}

/** The search for what the address asks, on the nsqds that have the topic when it begins; null until they are known. */
function useSearch(topic, asked, nodes) {
  const [known, setKnown] = useState(null);
  const search = useRef(null);
  useEffect(() => {
    if (!nodes) return undefined;
    search.current = new MessageSearch(topic, asked, nodes, setKnown);
    search.current.run(asked.requested);
    return () => search.current.cancel();
  }, [topic, JSON.stringify(asked), nodes === null]);
  return { known, search: search.current };
}

// ---- what to search for

function SearchForm({ query, nodes, isBusy }) {
  const [start, setStart] = useState(startOf(query));
  const isTime = start === "until" || start === "from";
  const submit = (event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    const fixed = { latest: {}, earliest: { from: start } };
    const chosen = fixed[start] ?? { [start]: isTime ? new Date(fields.get("time")).toISOString() : fields.get("number") };
    const words = { limit: fields.get("limit"), node: fields.get("node"), ...filtersIn(fields) };
    setQuery({ ...NO_START, ...chosen, ...words }, { push: true });
  };
  return html`<form class="section" aria-label="Messages to look for" onSubmit=${submit}>
    <div class="form-row">
      <${FormField} name="start" label="Show" type="select" options=${STARTS} value=${start}
        onChange=${(event) => setStart(event.target.value)} />
      ${isTime && html`<${FormField} name="time" label="Local time" type="datetime-local" step="1" required
        value=${localTime(query[start])} />`}
      ${(start === "seq" || start === "before") && html`<${FormField} name="number" label="Number" type="number" min="0"
        required value=${query.seq || query.before || "0"} />`}
      <${FormField} name="limit" label="Messages" type="select" options=${COUNTS} value=${query.limit || FIRST_COUNT} />
      <${FormField} name="node" label="nsqd" type="select" options=${[ALL, ...nodes]} value=${query.node ?? ""} />
    </div>
    <div class="form-row"><${FilterFields} values=${query} />
      <button type="submit" class="button primary" disabled=${isBusy}>Show messages</button></div>
    <p class="help">${FILTER_HELP}</p>
  </form>`;
}

function startOf({ before, seq, from, until }) {
  if (before) return "before";
  if (seq) return "seq";
  if (until && until !== "latest") return "until";
  if (!from || from === "latest") return "latest";
  return from === "earliest" ? "earliest" : "from";
}

/** As fields of type datetime-local want it. @param {string} [from] an RFC 3339 time */
function localTime(from) {
  const given = new Date(from ?? "").getTime();
  const timeMs = Number.isNaN(given) ? Date.now() - 3_600_000 : given;
  return new Date(timeMs - new Date(timeMs).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

// ---- what was found

const TIME = { key: "timestamp", title: "Published", cell: (row) => html`<span class="nowrap figure">${millis(row)}</span>` };
const NODE = { key: "node", title: "nsqd" };
const COLUMNS = [
  { key: "seq", title: "Number", number: true, cell: (row) => row.seq }, // also 0, on a phone
  { key: "size", title: "Bytes", number: true },
  { key: "body", title: "Body", wide: true, preview: true, cell: (row) => html`<code>${preview(row)}</code>` },
];
const OF_ONE = [TIME, ...COLUMNS];
const OF_SEVERAL = [TIME, NODE, ...COLUMNS];

/** "21 Nov 2026, 16:22:54.123" */
function millis({ timestamp }) {
  return `${timeText(timestamp)}.${String(Math.floor(timestamp / 1e6) % 1000).padStart(3, "0")}`;
}

function Found({ topic, asked, known, search }) {
  const { parts, requested, isBusy, message } = known;
  const { start, isBack } = asked;
  const rows = shownOf(parts, requested, isBack);
  const more = requested + asked.requested;
  const hasMore = !isBusy && (shownOf(parts, more, isBack).length > rows.length || unfinished(parts, more, isBack).length > 0);
  const goOn = hasMore ? () => search.run(more) : null;
  const [back, forth] = [goTo(isBack ? null : start), goTo(isBack ? start : null)];
  const failed = parts.filter((part) => part.error && !message);
  return html`<section class="section" aria-label="Messages found">
    ${message && html`<${Failed} message=${message} />`}
    ${failed.map(({ node, error, can }) => html`<p key=${node} class="banner ${can ? "warning" : ""}" role="status">${name(node)}
      ${can ? `: ${plain(error)}. Its messages are missing here.` : " cannot show messages."}</p>`)}
    <div class="section-head">
      <${Progress} parts=${parts} found=${rows.length} asked=${asked} isBusy=${isBusy} />
      <${More} text="Newer messages" onClick=${isBack ? forth : goOn} isBusy=${isBusy} />
      ${isBusy && html`<button type="button" class="button" onClick=${() => search.cancel()}>Cancel</button>`}
      ${!isBusy && !message && unfinished(parts, requested, isBack).length > 0 && html`<button type="button" class="button"
        onClick=${() => search.run(requested)}>Search on</button>`}
    </div>
    <${Table} caption="Messages found" captionHidden columns=${parts.length > 1 ? OF_SEVERAL : OF_ONE} rows=${rows}
      rowKey=${(row) => `${row.node} ${row.seq}`} empty=${isBusy ? "Searching …" : "No message found."}
      unfold=${(row) => html`<ol class="card-list"><${Message} message=${row} topic=${topic}
        source=${{ path: at("topics", topic, "messages", row.seq), node: row.node }} /></ol>`} />
    <p class="pager"><${More} text="Older messages" onClick=${isBack ? goOn : back} isBusy=${isBusy} /></p>
  </section>`;
}

/** Goes to what is on the other side of a start; null where nothing is. */
function goTo(start) {
  const other = { from: "until", until: "from", seq: "before", before: "seq" };
  const [[key, value] = []] = Object.entries(start ?? {});
  if (!key || value === "latest" || value === "earliest") return null;
  return () => setQuery({ ...NO_START, [other[key]]: value }, { push: true });
}

function More({ text, onClick, isBusy }) {
  return onClick && html`<button type="button" class="button" disabled=${isBusy} onClick=${onClick}>${text}</button>`;
}

function Progress({ parts, found, asked: { filters, isBack }, isBusy }) {
  const { searched, of } = progressOf(parts);
  const what = isFiltered(filters) ? `${count(found)} of ${counted(searched, "message")} that were searched`
    : counted(found, "message");
  const isWhole = parts.every((part) => part.isOver && !part.error);
  const end = isWhole ? `; the log${parts.length > 1 ? "s" : ""} ${isBack ? "begin" : "end"}${parts.length > 1 ? "" : "s"} here` : "";
  const all = isBusy && of !== null ? `; ${count(of)} to search` : "";
  return html`<p class="note grow" role="status">${what}${all}${end}</p>
    ${isBusy && html`<progress aria-label="Searched" max=${of ?? undefined} value=${of === null ? undefined : searched}></progress>`}`;
}
