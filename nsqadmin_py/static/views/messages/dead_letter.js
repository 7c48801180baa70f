// One dead letter with its body, from the log of its topic.

import { at, explain, get } from "../../lib/api.js";
import { name, time as shownTime } from "../../lib/format.js";
import { html, useEffect, useState } from "../../lib/html.js";
import { Failed, Loading } from "../../parts/state.js";
import { counted } from "../shared/lost_messages.js";
import { Message } from "./message.js";

/** What is shown below a row. @param {{topic: string, deadLetter: object, children?: any}} props  `children` are more buttons */
export function DeadLetter({ topic, deadLetter, children }) {
  return html`<p>${originText(deadLetter)}</p>
    <${Body} topic=${topic} deadLetter=${deadLetter}>${children}<//>`;
}

function originText({ topic, channel, attempts, died }) {
  if (!topic) return "Its nsqd does not remember where it came from.";
  return html`Failed at ${shownTime(died)} in the channel ${name(channel)} of ${name(topic)}, after ${counted(attempts, "attempt")}.`;
}

function Body({ topic, deadLetter, children }) {
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
  return html`<ol class="card-list"><${Message} message=${seen.message} topic=${topic} source=${source}>${children}<//></ol>`;
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
