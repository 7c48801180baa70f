// Messages that were tried too often: where they come from, what is in them, and how they get back.

import { at, get } from "../../lib/api.js";
import { count, iso, name, plain, time as shownTime } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { METRICS } from "../../lib/metrics.js";
import { paths, setQuery, useTitle } from "../../lib/route.js";
import { Save } from "../../parts/save.js";
import { Failed, Loading } from "../../parts/state.js";
import { sorted, Table } from "../../parts/table.js";
import { Tiles } from "../../parts/tiles.js";
import { isDead } from "../shared/badges.js";
import { counted } from "../shared/lost_messages.js";
import { usePages } from "../shared/pages.js";
import { usePolled } from "../shared/polling.js";
import { orderOf } from "../shared/rows.js";
import { TickAll, TickBox, ticked } from "../shared/tick_boxes.js";
import { MissingTopic } from "../topic/missing.js";
import { TopicTabs } from "../topic/topic_tabs.js";
import { DeadLetter } from "./dead_letter.js";
import { DeadLetterActions } from "./dead_letter_actions.js";
import { channelsOf, failuresOf, deadLettersOf, originsOf } from "./dead_letter_list.js";
import { SelectionBar } from "./dead_letter_selection.js";
import { preview } from "./message_body.js";
import { Requeue } from "./requeue.js";

const ASKED_EVERY_MS = 10_000;
const PAGE_ROWS = 25;
const SORTABLE = ["seq", "died", "id", "attempts", "topic", "channel", "timestamp", "node"];

/** @param {{params: {topic: string}, query: Record<string, string>}} props */
export function DeadLettersView({ params, query }) {
  const { topic } = params;
  useTitle(`Dead letters in ${topic}`);
  const live = useLive("topic", { topic });
  return html`
    <nav class="crumbs" aria-label="Where this is">
      <a href=${paths.topics()}>Topics</a> / <a href=${paths.topic(topic)}>${name(topic)}</a>
    </nav>
    <header class="title-row"><h1 tabindex="-1">Dead letters in ${name(topic)}</h1></header>
    ${live.state === "gone" ? html`<${MissingTopic} topic=${topic} />` : html`
      <${TopicTabs} topic=${topic} current="dead" />
      <${Contents} topic=${topic} live=${live} query=${query} />
    `}
  `;
}

function Contents({ topic, live, query }) {
  const { data, message, reload } = usePolled(topic, () => get(at("topics", topic, "dead-letters")), ASKED_EVERY_MS);
  const deadLetters = useMemo(() => deadLettersOf(data), [data]);
  const why = live.time ? message : live.message || message;
  if (!data || !live.time) return why ? html`<${Failed} message=${why} retry=${reload} />` : html`<${Loading} />`;
  const origins = originsOf(deadLetters);
  const channels = channelsOf(live.rows);
  const isOne = isDead(topic) || origins.length > 0; // in any other topic, ordinary messages wait
  return html`
    ${message && html`<${Failed} message=${message} retry=${reload} />`}
    ${isOne ? html`<${Tiles} items=${tilesOf(live.head, deadLetters, origins)} />`
      : html`<${NoSuch} topic=${topic} number=${live.head.dead_letters} />`}
    <${Failures} nodes=${data.nodes} />
    <${Requeue}
      topic=${topic} head=${live.head} channels=${channels} origins=${origins} isUsual=${isOne} onDone=${reload}
    />
    ${isOne && html`<${DeadLetters} topic=${topic} deadLetters=${deadLetters} channels=${channels} query=${query}
      onDone=${reload} />`}
  `;
}

function tilesOf(head, deadLetters, origins) {
  return [
    { label: "Depth", value: count(head.depth), title: "Messages that wait in the topic and its channels" },
    ...(head.in_flight ? [{ label: "In flight", value: count(head.in_flight), title: METRICS.in_flight.help }] : []),
    { label: "Listed", value: count(deadLetters.length), title: "The latest that no consumer has finished" },
    { label: "Source topics", value: count(origins.length) },
  ];
}

function NoSuch({ topic, number }) {
  const usual = `${topic}.dead`;
  if (number) {
    return html`<div class="panel"><p>
      <a href=${paths.deadLetters(usual)}>${counted(number, "dead letter")}</a> of this topic wait in ${name(usual)}.
    </p></div>`;
  }
  return html`
    <div class="panel empty">
      <h2>No dead letters</h2>
      <p>
        Nothing says that this topic has any. Where nsqds run with --max-attempts, dead letters of ${name(topic)} go to
        ${" "}<a href=${paths.deadLetters(usual)}>${name(usual)}</a>, or to their --dead-letter-topic.
      </p>
    </div>
  `;
}

function Failures({ nodes }) {
  const failed = failuresOf(nodes);
  if (!failed.length) return null;
  return html`<ul class="banner warning" role="status">
    ${failed.map(({ node, error }) => html`<li key=${node}>${name(node)}: ${plain(error)}</li>`)}
  </ul>`;
}

// ---- the letters

function DeadLetters({ topic, deadLetters, channels, query, onDone }) {
  const [chosen, setChosen] = useState(new Set());
  const { sort, order } = query.sort ? orderOf(query, SORTABLE, "died") : { sort: "timestamp", order: "desc" };
  const inOrder = sorted(sorted(deadLetters, "seq", order), sort, order); // of those that were published together, by number
  const { shown, pager } = usePages(inOrder, { what: "dead letters", limit: PAGE_ROWS });
  const keys = shown.map(({ key }) => key);
  const columns = useMemo(() => columnsOf(chosen, setChosen, keys), [chosen, keys.join()]);
  const selected = deadLetters.filter(({ key }) => chosen.has(key));
  const leave = () => {
    setChosen(new Set());
    onDone();
  };
  return html`
    <section class="section" aria-labelledby="dead-letters">
      <div class="section-head"><h2 id="dead-letters">The latest dead letters</h2>
        <${Save} name=${`dead letters of ${topic}`} columns=${columns} rows=${() => inOrder} /></div>
      <p class="muted">The last 100 of each nsqd that wait; more may wait before them. An nsqd remembers since its start where the
        last 100 came from.</p>
      <${SelectionBar} topic=${topic} channels=${channels} deadLetters=${selected} onDone=${leave} />
      <${Table}
        caption="The latest dead letters" captionHidden columns=${columns}
        rows=${shown} rowKey=${({ key }) => key}
        sort=${sort} order=${order} onSort=${(key, way) => setQuery({ sort: key, order: way })}
        empty="No dead letter waits in this topic."
        unfold=${(deadLetter) => html`<${DeadLetter} topic=${topic} deadLetter=${deadLetter}>
          ${channels.length === 1 && html`<${DeadLetterActions} topic=${topic} channel=${channels[0].channel} node=${deadLetter.node}
            message=${deadLetter} origins=${originsOf([deadLetter])} onDone=${onDone} />`}<//>`}
      />
      ${pager}
    </section>
  `;
}

function columnsOf(chosen, setChosen, keys) {
  return [
    {
      key: "timestamp", title: "Published", sortable: true, firstOrder: "desc",
      headBefore: html`<${TickAll} keys=${keys} chosen=${chosen} onChange=${setChosen} />`,
      before: ({ key, id }) => html`<${TickBox} isTicked=${chosen.has(key)} label=${`Select the message ${id}`}
        onChange=${() => setChosen(ticked(chosen, key))} />`,
      saved: ({ timestamp }) => iso(timestamp), cell: ({ timestamp }) => shownTime(timestamp),
    },
    {
      key: "died", title: "Failed at", sortable: true, firstOrder: "desc", wide: true, saved: ({ died }) => iso(died),
      cell: ({ died }) => (died ? html`<span class="nowrap">${shownTime(died)}</span>` : "–"),
    },
    { key: "topic", title: "From topic", sortable: true, cell: ({ topic }) => linked(topic, topic && paths.topic(topic)) },
    {
      key: "channel", title: "Channel", sortable: true,
      cell: ({ topic, channel }) => linked(channel, topic && paths.channel(topic, channel)),
    },
    { key: "attempts", title: "Attempts", number: true, sortable: true, cell: ({ attempts }) => attempts ?? "–" },
    { key: "node", title: "nsqd", sortable: true, cell: ({ node }) => linked(node, paths.node(node)) },
    { key: "seq", title: "Number", number: true, sortable: true, cell: ({ seq }) => seq ?? "–" },
    { key: "id", title: "Message", isOnlySaved: true },
    { key: "body", title: "Body", wide: true, preview: true, saved: preview, cell: (row) => html`<code>${preview(row)}</code>` },
  ];
}

/** A name with its page, where it is known. */
function linked(text, href) {
  return href ? html`<a href=${href}>${name(text)}</a>` : "–";
}
