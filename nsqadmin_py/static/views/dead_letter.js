// One dead letter with its body, from the log of its topic.

import { at, explain, get } from "../lib/api.js";
import { count, name, plain, time as shownTime } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Dialog } from "../parts/dialog.js";
import { Failed, Loading } from "../parts/state.js";
import { counted } from "./lost_messages.js";
import { Message } from "./message.js";

/**
 * @param {{topic: string, deadLetter: object, onClose: () => void}} props
 */
export function DeadLetterDialog({ topic, deadLetter, onClose }) {
  return html`<${Dialog} title=${`Dead letter ${plain(deadLetter.id)}`} onClose=${onClose} wide>
    <div class="dialog-body">
      <p>${originText(deadLetter)} It is on ${name(deadLetter.node)}${deadLetter.seq !== undefined && `, with the number ${count(deadLetter.seq)}`}.</p>
      <${Body} topic=${topic} deadLetter=${deadLetter} />
      <div class="dialog-buttons">
        <button type="button" class="button" data-focus onClick=${onClose}>Close</button>
      </div>
    </div>
  <//>`;
}

function originText({ topic, channel, attempts, died }) {
  if (!topic) return "Its nsqd does not remember where it came from.";
  return html`Failed at ${shownTime(died)} in the channel ${name(channel)} of ${name(topic)}, after ${counted(attempts, "attempt")}.`;
}

function Body({ topic, deadLetter }) {
  const [seen, setSeen] = useState(null);
  useEffect(() => {
    let isOver = false;
    read(topic, deadLetter).then((found) => isOver || setSeen(found));
    return () => {
      isOver = true;
    };
  }, [deadLetter.key]);
  if (!seen) return html`<${Loading} what="its body" />`;
  if (!seen.message) return html`<${Failed} message=${seen.error} />`;
  const source = { path: at("topics", topic, "messages", deadLetter.seq), node: deadLetter.node };
  return html`<ol class="card-list"><${Message} message=${seen.message} topic=${topic} source=${source} /></ol>
    <p class="help">One message is requeued or discarded in <b>Peek</b>, on the page of a channel of this topic.</p>`;
}

/** The message as the log has it, or why there is none. */
async function read(topic, { seq, id, node }) {
  if (seq === undefined) return { error: "This nsqd shows no log of the topic." };
  try {
    const [seen] = (await get(at("topics", topic, "messages"), { seq, limit: 1, node })).nodes;
    const message = seen?.answer?.messages.find((one) => one.id === id);
    return message ? { message } : { error: seen?.error ?? "It has left the log." };
  } catch (failure) {
    return { error: explain(failure) };
  }
}
