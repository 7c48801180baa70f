// Puts dead letters back: all that wait in the topic go to another one.

import { whyNot } from "../../lib/api.js";
import { count, plain } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { perform } from "../../parts/actions.js";
import { confirm, FormField } from "../../parts/dialog.js";
import { counted } from "../shared/lost_messages.js";
import { TOPIC } from "../topic/create.js";
import { usualTarget, waitingIn } from "./dead_letter_list.js";

// As many as nsqadmin moves at once.
const MOST = 100_000;
export const NEW_CHANNEL = "nsqadmin";
const NEW_CHANNEL_TEXT = `The topic has no channel. Requeueing creates the channel ${NEW_CHANNEL}, which gets all messages that ` +
  "wait in the topic, and keeps those that are not requeued.";

/**
 * @param {object} props
 * @param {string} props.topic
 * @param {{topic_depth: number}} props.head  metrics of the topic
 * @param {{channel: string, depth: number}[]} props.channels
 * @param {string[]} props.origins  topics that its dead letters come from
 * @param {boolean} props.isUsual  false for topics that take no dead letters, as far as anybody knows
 * @param {() => void} props.onDone
 */
export function Requeue({ topic, head, channels, origins, isUsual, onDone }) {
  const form = html`<${Form} topic=${topic} head=${head} channels=${channels} origins=${origins} onDone=${onDone} />`;
  if (!isUsual) return html`<details><summary>Requeue these messages to another topic</summary>${form}</details>`;
  return html`
    <section class="section" aria-labelledby="requeue">
      <h2 id="requeue">Requeue</h2>
      ${form}
    </section>
  `;
}

function Form({ topic, head, channels, origins, onDone }) {
  const [channel, setChannel] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [limit, setLimit] = useState("");
  const from = channels.some((row) => row.channel === channel) ? channel : (channels[0]?.channel ?? "");
  const waiting = waitingIn(head, channels, from);
  const most = Math.min(waiting, Number(limit) || MOST);
  const submit = async (event) => {
    event.preventDefault();
    const fields = new FormData(event.target);
    const order = orderOf(topic, from, fields.get("target").trim(), limit);
    if (!(await confirm({ ...questionOf(order, waiting), curl: [order] }))) return;
    setBusy(true);
    if (await perform(order, doneText)) onDone();
    setBusy(false);
  };
  return html`
    <form class="form-row" onSubmit=${submit}>
      <${FormField}
        ...${TOPIC} name="target" label="To topic" value=${usualTarget(topic, origins)} options=${origins} help=""
      />
      ${channels.length > 1 && html`<${FormField}
        name="channel" label="From channel" type="select" value=${from} options=${channels.map((row) => row.channel)}
        onChange=${(event) => setChannel(event.target.value)}
      />`}
      <${FormField}
        name="limit" label="At most" type="number" min="1" max=${MOST} placeholder=${`all, up to ${count(MOST)}`}
        onInput=${(event) => setLimit(event.target.value)}
      />
      <button class="button primary" disabled=${isBusy || !waiting || Boolean(whyNot())} title=${whyNot()}>
        ${isBusy ? "Requeueing …" : `Requeue ${most < waiting ? `${count(most)} of ` : ""}${counted(waiting, "message")} …`}
      </button>
    </form>
    ${helps(channels, origins).map((help) => html`<p key=${help} class="help">${help}</p>`)}
  `;
}

function helps(channels, origins) {
  return [
    !channels.length && NEW_CHANNEL_TEXT,
    channels.length > 1 && "Each channel has its own messages: those of one are requeued, the others keep theirs.",
    origins.length > 1 && `They come from several topics (${origins.map(plain).join(", ")}); all go to the one above.`,
  ].filter(Boolean);
}

function orderOf(topic, channel, target, limit) {
  const order = { action: "requeue_dead_letters", topic, target };
  if (channel) order.channel = channel;
  if (limit) order.limit = Number(limit);
  return order;
}

function questionOf({ topic, channel, target, limit = MOST }, waiting) {
  const number = Math.min(waiting, limit);
  const rest = waiting > number ? ` The other ${count(waiting - number)} stay.` : "";
  return {
    title: `Requeue ${counted(number, "message")} to ${target}?`,
    text: `${channel ? "" : `${NEW_CHANNEL_TEXT} `}${number === 1 ? "It is" : "They are"} published to ${target} again, on the same nsqd, and then finished ` +
      `in the channel ${channel ?? NEW_CHANNEL} of ${topic}.${rest} All channels of ${target} get them, also ` +
      "those that had finished them. Nothing is lost; if it is interrupted, some may come twice.",
    button: "Requeue",
    danger: false,
  };
}

function doneText({ requeued }) {
  return `${counted(requeued, "message")} requeued.`;
}
