// The messages that the log of a topic has, also those that are finished: the latest, or from a place on; filtered.

import { at, explain, get } from "../lib/api.js";
import { count, name, plain, timeText } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { useLive } from "../lib/live.js";
import { paths, setQuery, useTitle } from "../lib/route.js";
import { FormField } from "../parts/dialog.js";
import { Failed, Loading } from "../parts/state.js";
import { counted } from "./losses.js";
import { isEphemeral } from "./marks.js";
import { Message } from "./message.js";
import { FilterFields, filtersIn, isFiltered } from "./message_filters.js";
import { MissingTopic } from "./missing.js";
import { TopicTabs } from "./topic_tabs.js";

const COUNTS = ["10", "50", "200", "1000"];
const FIRST_COUNT = "50";
const STARTS = [
  { value: "latest", label: "The latest" },
  { value: "earliest", label: "The oldest that is kept" },
  { value: "time", label: "A time" },
  { value: "seq", label: "A number" },
];
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
  const words = wordsOf(query);
  const { nodes, message, isBusy } = useFound(topic, words);
  const holders = live.rows.filter((row) => !row.channel && row.state !== "gone").map((row) => row.node);
  return html`
    <${SearchForm} key=${JSON.stringify(words)} query=${query} nodes=${holders} isBusy=${isBusy} />
    ${message && html`<${Failed} message=${message} />`}
    ${isBusy && html`<${Loading} what="messages" />`}
    ${!isBusy && nodes?.map((node) => html`<${OfNode} key=${node.node} topic=${topic} node=${node} words=${words} />`)}
  `;
}

/** What is asked, from the address. */
function wordsOf(query) {
  const places = [["before", query.before], ["seq", query.seq], ["from", query.from || "latest"]];
  const place = Object.fromEntries([places.find(([, value]) => value)]);
  return { ...place, ...filtersIn(query), limit: query.limit || FIRST_COUNT, node: query.node ?? "" };
}

/** True for the latest messages, or the last ones before a number: then there is more before them. */
function isBackwards({ before, from }) {
  return Boolean(before) || from === "latest";
}

/** The answer to the address as it is now. */
function useFound(topic, words) {
  const [found, setFound] = useState({ nodes: null, message: "", isBusy: true });
  useEffect(() => {
    let isOver = false;
    setFound({ nodes: null, message: "", isBusy: true });
    get(at("topics", topic, "messages"), words)
      .then(({ nodes }) => ({ nodes, message: "", isBusy: false }))
      .catch((error) => ({ nodes: null, message: explain(error), isBusy: false }))
      .then((news) => isOver || setFound(news));
    return () => {
      isOver = true;
    };
  }, [topic, JSON.stringify(words)]);
  return found;
}

// ---- what to look for

function SearchForm({ query, nodes, isBusy }) {
  const [start, setStart] = useState(startOf(query));
  const submit = (event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    const place = { from: "", seq: "", before: "" };
    if (start === "seq") place.seq = fields.get("seq");
    else place.from = start === "time" ? new Date(fields.get("time")).toISOString() : start;
    setQuery({ ...place, ...filtersIn(fields), limit: fields.get("limit"), node: fields.get("node") }, { push: true });
  };
  return html`<form class="section" aria-label="Messages to look for" onSubmit=${submit}>
    <div class="form-row">
      <${FormField} name="start" label="Begin with" type="select" options=${STARTS} value=${start}
        onChange=${(event) => setStart(event.target.value)} />
      ${start === "time" && html`<${FormField} name="time" label="Local time" type="datetime-local" step="1" required
        value=${localTime(query.from)} />`}
      ${start === "seq" && html`<${FormField} name="seq" label="Number" type="number" min="0" required
        value=${query.seq || query.before || "0"} />`}
      <${FormField} name="limit" label="Messages per nsqd" type="select" options=${COUNTS}
        value=${query.limit || FIRST_COUNT} />
      <${FormField} name="node" label="nsqd" type="select" options=${[ALL, ...nodes]} value=${query.node ?? ""} />
    </div>
    <div class="form-row"><${FilterFields} values=${query} />
      <button type="submit" class="button primary" disabled=${isBusy}>Show messages</button></div>
    <p class="help">${FILTER_HELP}</p>
  </form>`;
}

function startOf({ before, seq, from }) {
  if (seq || before) return "seq";
  return ["earliest", "latest", undefined, ""].includes(from) ? from || "latest" : "time";
}

/** As fields of type datetime-local want it. @param {string} [from] an RFC 3339 time */
function localTime(from) {
  const given = new Date(from ?? "").getTime();
  const timeMs = Number.isNaN(given) ? Date.now() - 3_600_000 : given;
  return new Date(timeMs - new Date(timeMs).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

// ---- what was found

function OfNode({ topic, node, words }) {
  const [more, setMore] = useState({ pages: [], message: "", isBusy: false });
  const label = `Messages of ${plain(node.node)}`;
  if (!node.answer) {
    return html`<section class="section" aria-label=${label}>
      <h2>${name(node.node)}</h2>
      ${node.can ? html`<${Failed} message=${node.error} />`
        : html`<p class="note">The nsqd at ${name(node.node)} cannot show messages.</p>`}
    </section>`;
  }
  const isBack = isBackwards(words);
  const pages = isBack ? [...more.pages, node.answer] : [node.answer, ...more.pages];
  const messages = pages.flatMap((page) => page.messages);
  const goOn = async (place) => {
    setMore((before) => ({ ...before, isBusy: true }));
    setMore(await extended(topic, node.node, words, place, more.pages));
  };
  const goTo = (place) => setQuery({ from: "", seq: "", before: "", node: node.node, ...place }, { push: true });
  return html`<section class="section" aria-label=${label}>
    <div class="section-head">
      <h2>${name(node.node)}</h2>
      <p class="note" role="status">${foundText(pages, messages.length, words)}</p>
    </div>
    <${Before} page=${pages[0]} isBack=${isBack} words=${words} isBusy=${more.isBusy} goOn=${goOn} goTo=${goTo} />
    ${messages.length > 0 && html`<ol class="card-list">
      ${messages.map((message) => html`<${Message} key=${message.seq} message=${message} topic=${topic}
        source=${{ path: at("topics", topic, "messages", message.seq), node: node.node }} />`)}
    </ol>`}
    ${more.message && html`<${Failed} message=${more.message} />`}
    <${After} page=${pages.at(-1)} isBack=${isBack} words=${words} isBusy=${more.isBusy} goOn=${goOn} goTo=${goTo} />
  </section>`;
}

/** What leads to messages before the first one: adds them, or goes to them. */
function Before({ page, isBack, words, isBusy, goOn, goTo }) {
  const first = page.messages[0]?.seq;
  if (isBack ? page.is_start : !first) return null;
  const onClick = () => (isBack ? goOn({ before: page.prev_seq }) : goTo({ before: first }));
  return html`<p class="pager"><button type="button" class="button" disabled=${isBusy} onClick=${onClick}>
    ${isBack && isFiltered(words) ? "Search further back" : "Earlier messages"}</button></p>`;
}

/** The same behind the last one. */
function After({ page, isBack, words, isBusy, goOn, goTo }) {
  if (isBack ? !words.before : page.is_end) return null;
  const onClick = () => (isBack ? goTo({ seq: words.before }) : goOn({ seq: page.next_seq }));
  return html`<p class="pager"><button type="button" class="button" disabled=${isBusy} onClick=${onClick}>
    ${!isBack && isFiltered(words) ? "Search on" : "Later messages"}</button></p>`;
}

/** The pages that were added, with one more. */
async function extended(topic, node, { limit, ...words }, place, pages) {
  try {
    const { nodes: [found] } = await get(at("topics", topic, "messages"), { ...filtersIn(words), limit, node, ...place });
    if (!found.answer) return { pages, message: found.error, isBusy: false };
    const more = place.before === undefined ? [...pages, found.answer] : [found.answer, ...pages];
    return { pages: more, message: "", isBusy: false };
  } catch (error) {
    return { pages, message: explain(error), isBusy: false };
  }
}

function foundText(pages, found, words) {
  const searched = pages.reduce((sum, page) => sum + page.searched_count, 0);
  const what = isFiltered(words) ? `${count(found)} of ${counted(searched, "message")} that were searched`
    : counted(found, "message");
  if (isBackwards(words)) return `${what}${pages[0].is_start ? "; the log begins here" : ""}`;
  const time = pages.map((page) => page.last_timestamp).filter(Boolean).at(-1);
  return `${what}${time ? `, up to ${timeText(time)}` : ""}${pages.at(-1).is_end ? "; the log ends here" : ""}`;
}
