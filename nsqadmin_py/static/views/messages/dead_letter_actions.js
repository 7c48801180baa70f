// One message that waits in a channel is requeued to another topic, or discarded.

import { plain } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { ActionButton } from "../../parts/actions.js";
import { ask } from "../../parts/dialog.js";
import { TOPIC } from "../topic/create.js";
import { usualTarget } from "./dead_letter_list.js";

const SHOWN_CHARACTERS = 80;
const OLD_NSQD = "not supported by this nsqd";

/**
 * @param {object} props
 * @param {string} props.topic
 * @param {string} props.channel
 * @param {string} props.node
 * @param {{id: string, seq?: number, body?: string}} props.message  one of /channel/peek
 * @param {string[]} [props.origins]  topics that it may come from
 * @param {(words: string) => void} props.onDone
 */
export function DeadLetterActions({ topic, channel, node, message, origins = [], onDone }) {
  const target = { topic, channel, node, seq: message.seq, message: message.id };
  const requeue = { action: "requeue_message", ...target };
  const discard = { action: "discard_message", ...target };
  const unless = message.seq === undefined ? OLD_NSQD : "";
  return html`
    <${ActionButton} kind="small" label="Requeue …" of=${requeue} unless=${unless} onDone=${onDone}
      order=${() => targeted(requeue, usualTarget(topic, origins), origins)}
      done="The message has been requeued." />
    <${ActionButton} kind="small danger" label="Discard …" order=${discard} unless=${unless} onDone=${onDone}
      confirm=${discardQuestion(discard, message)} done="The message has been discarded." />
  `;
}

/** Asks for the topic. @returns {Promise<object | null>} the order */
async function targeted(order, target, origins) {
  const withTarget = (values) => ({ ...order, target: values.target });
  const values = await ask({
    title: `Requeue the message ${order.message}?`,
    text: `The nsqd at ${order.node} publishes it to the topic below: all channels of that topic get it. Then it is finished ` +
      `in the channel ${order.channel} of ${order.topic}. Nothing is lost; if it is interrupted, the message may come twice.`,
    fields: [{ ...TOPIC, name: "target", label: "To topic", value: target, options: origins, help: "" }],
    button: "Requeue message",
    curl: withTarget,
  });
  return values && withTarget(values);
}

function discardQuestion(order, { body, size }) {
  const text = typeof body === "string" ? plain(body, SHOWN_CHARACTERS) : `${size} bytes`;
  return {
    title: `Discard the message ${order.message}?`,
    text: `It is finished in the channel ${order.channel} of ${order.topic} on ${order.node}. Other channels keep it.`,
    loses: [`1 message: ${text}`],
    button: "Discard message",
  };
}
