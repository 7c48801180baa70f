// One dead letter with its body, as far as some channel still has it.

import { at, explain, get } from "../lib/api.js";
import { count, name, plain, time as shownTime } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { ActionButton } from "../parts/actions.js";
import { Dialog } from "../parts/dialog.js";
import { Failed, Loading } from "../parts/state.js";
import { counted } from "./losses.js";
import { LetterActions } from "./letter_actions.js";
import { Message } from "./message.js";
import { sourceOf } from "./peek.js";

// As many as nsqds show.
const MOST_PEEKED = 1000;
const NEW_CHANNEL = "nsqadmin";

/**
 * `onDone`: the letter was requeued or discarded.
 * @param {{topic: string, letter: object, channels: {channel: string}[], onDone: () => void, onClose: () => void}} props
 */
export function LetterDialog({ topic, letter, channels, onDone, onClose }) {
  return html`<${Dialog} title=${`Dead letter ${plain(letter.id)}`} onClose=${onClose} wide>
    <div class="dialog-body">
      <p>
        Failed at ${shownTime(letter.died)} in the channel ${name(letter.channel)} of ${name(letter.topic)}, after
        ${" "}${counted(letter.attempts, "attempt")}. It is on ${name(letter.node)}.
      </p>
      ${channels.length > 0 && html`
        <${Body} topic=${topic} letter=${letter} channels=${channels.map((row) => row.channel)} onDone=${onDone} />
      `}
      ${!channels.length && html`<${NoChannel} topic=${topic} />`}
      <div class="dialog-buttons">
        <button type="button" class="button" data-focus onClick=${onClose}>Close</button>
      </div>
    </div>
  <//>`;
}

function NoChannel({ topic }) {
  return html`
    <p>Only messages in a channel can be viewed, and the topic ${name(topic)} has none. Its first channel will get all
      messages that wait.</p>
    <${ActionButton}
      order=${{ action: "create", topic, channel: NEW_CHANNEL }} label=${`Create the channel ${NEW_CHANNEL}`}
    />
  `;
}

function Body({ topic, letter, channels, onDone }) {
  const [seen, setSeen] = useState(null);
  useEffect(() => {
    let isOver = false;
    sought(topic, letter, channels).then((found) => isOver || setSeen(found));
    return () => {
      isOver = true;
    };
  }, [letter.key, channels.join(" ")]);
  if (!seen) return html`<${Loading} what="its body" />`;
  if (seen.message) return html`<ol class="card-list"><${Message} message=${seen.message} topic=${topic}
    attempts=${letter.attempts} source=${sourceOf(topic, seen.channel, letter.node, seen.message, { n: MOST_PEEKED })}>
    <${LetterActions} topic=${topic} channel=${seen.channel} node=${letter.node} message=${seen.message}
      origins=${[letter.topic]} onDone=${onDone} />
  <//></ol>`;
  return html`<${Failed} message=${seen.error} />`;
}

/** The message as a channel shows it that has it, or why there is none. */
async function sought(topic, letter, channels) {
  let error = `It is not among the first ${count(MOST_PEEKED)} waiting messages, or it has left the channel.`;
  for (const channel of channels) {
    try {
      const params = { n: MOST_PEEKED, node: letter.node };
      const path = at("topics", topic, "channels", channel);
      const [seen] = (await get(`${path}/peek`, params)).nodes;
      const message = seen?.answer?.messages.find(({ id }) => id === letter.id);
      if (message) return { message, channel };
      error = seen?.error ?? error;
    } catch (failure) {
      error = explain(failure);
    }
  }
  return { error };
}
