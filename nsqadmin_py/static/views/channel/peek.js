// The messages of a channel: those that it would deliver next, and those in flight and deferred. They stay as they are.

import { at, explain, get } from "../../lib/api.js";
import { count, name, plain } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { FormField } from "../../parts/dialog.js";
import { Badge, Failed } from "../../parts/state.js";
import { DeadLetterActions } from "../messages/dead_letter_actions.js";
import { Message } from "../messages/message.js";
import { FilterFields, filtersIn, isFiltered } from "../messages/message_filters.js";

const COUNTS = ["1", "10", "50", "200", "1000"];
const FIRST_COUNT = "10";
const ALL = { value: "", label: "All" };
const QUEUED = "";
const STATES = [
  { value: QUEUED, label: "Waiting" }, { value: "in_flight", label: "In flight" }, { value: "deferred", label: "Deferred" },
];

/** @param {{topic: string, channel: string, nodes: string[]}} props */
export function Peek({ topic, channel, nodes }) {
  const [seen, setSeen] = useState({ nodes: null, words: {}, message: "", isBusy: false });
  const peek = async (words) => {
    setSeen((before) => ({ ...before, isBusy: true }));
    setSeen(await peeked(topic, channel, words));
  };
  const submit = (event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    peek({ n: fields.get("n"), node: fields.get("node"), state: fields.get("state"), ...filtersIn(fields) });
  };
  return html`<section class="section" aria-labelledby="peek">
    <div class="section-head">
      <h2 id="peek">Messages of the channel</h2>
      <p class="note">Waiting messages in the order of delivery. Peeking takes nothing from the channel.</p>
    </div>
    <form onSubmit=${submit}>
      <div class="form-row narrow">
        <${FormField} name="state" label="State" type="select" options=${STATES} />
        <${FormField} name="n" label="Messages per nsqd" type="select" options=${COUNTS} value=${FIRST_COUNT} />
        <${FormField} name="node" label="nsqd" type="select" options=${[ALL, ...nodes]} />
        <button type="submit" class="button" disabled=${seen.isBusy}>Peek</button>
      </div>
      <div class="form-row"><${FilterFields} /></div>
    </form>
    <div role="status">${seen.message && html`<${Failed} message=${seen.message} />`}</div>
    ${seen.nodes?.map((node) => html`<${OfNode} key=${node.node} node=${node} topic=${topic} channel=${channel}
      words=${seen.words} again=${() => peek(seen.words)} />`)}
  </section>`;
}

async function peeked(topic, channel, words) {
  try {
    const { nodes } = await get(at("topics", topic, "channels", channel, "peek"), words);
    return { nodes, words, message: "", isBusy: false };
  } catch (error) {
    return { nodes: null, words, message: explain(error), isBusy: false };
  }
}

function OfNode({ node, topic, channel, words, again }) {
  const { answer, can } = node;
  return html`<section class="section" aria-label=${`Messages of ${plain(node.node)}`}>
    <div class="section-head">
      <h3>${name(node.node)}</h3>
      ${answer && html`<p class="note">${foundText(answer, words)}</p>`}
    </div>
    ${!answer && !can && html`<p class="note">The nsqd at ${name(node.node)} cannot show messages.</p>`}
    ${!answer && can && html`<${Failed} message=${node.error} />`}
    ${answer?.unreadable_count > 0 && html`<p>
      <${Badge} kind="warning">${count(answer.unreadable_count)} cannot be read from disk now<//>
    </p>`}
    ${answer?.messages.length > 0 && html`<ol class="card-list">
      ${answer.messages.map((message, i) => html`<${Message} key=${`${message.id} ${i}`} message=${message} topic=${topic}
        source=${sourceOf(topic, channel, node.node, message, words)}>
        ${words.state === QUEUED && html`<${DeadLetterActions} topic=${topic} channel=${channel} node=${node.node}
          message=${message} onDone=${again} />`}
      <//>`)}
    </ol>`}
  </section>`;
}

/** Where the whole body of a message is: by its number, or in the same peek if the nsqd does not say that. */
export function sourceOf(topic, channel, node, { id, seq }, { n, state }) {
  return { path: at("topics", topic, "channels", channel, "messages", id), node, seq, n, state };
}

function foundText({ messages, depth, in_flight_count: inFlight, deferred_count: deferred, searched_count: searched }, words) {
  if (isFiltered(words)) return `${count(messages.length)} of ${count(searched)} that were searched`;
  if (words.state !== QUEUED) return `${count(messages.length)} of ${count(words.state === "deferred" ? deferred : inFlight)}`;
  const others = [[inFlight, "in flight"], [deferred, "deferred"]]
    .filter(([number]) => number).map(([number, text]) => `${count(number)} ${text}`);
  const more = others.length ? `; also ${others.join(" and ")}` : "";
  return depth || messages.length ? `${count(messages.length)} of ${count(depth)}${more}` : `No message waits${more}`;
}
