// Dead letters that are selected: they go back to a topic, or are discarded.

import { act, at, explain, get, whyNot } from "../../lib/api.js";
import { plain } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { ActionBar } from "../../parts/actions.js";
import { ask, confirm } from "../../parts/dialog.js";
import { notify } from "../../parts/notices.js";
import { counted } from "../shared/lost_messages.js";
import { TOPIC } from "../topic/create.js";
import { originsOf, usualTarget } from "./dead_letter_list.js";
import { preview } from "./message_body.js";
import { NEW_CHANNEL } from "./requeue.js";

const MOST_NAMED = 5;
const SHOWN_CHARACTERS = 80;
const NEW_CHANNEL_TEXT = `The topic has no channel: the channel ${NEW_CHANNEL} is created, which gets all messages that wait in ` +
  "the topic, and keeps those that are not selected. ";
const CHANNEL_TRIES = 20;
const CHANNEL_AFTER_MS = 500;

/**
 * @param {object} props
 * @param {string} props.topic  that has them
 * @param {{channel: string}[]} props.channels
 * @param {object[]} props.deadLetters  the selected ones
 * @param {() => void} props.onDone
 */
export function SelectionBar({ topic, channels, deadLetters, onDone }) {
  const [isBusy, setBusy] = useState(false);
  const why = whyNot({ action: "requeue_message", topic }) || whyNothing(deadLetters);
  const run = (question, done) => async () => {
    if (why || isBusy) return;
    const more = await question(topic, channels, deadLetters);
    if (!more) return;
    setBusy(true);
    await performAll(topic, channels, deadLetters, more, done);
    setBusy(false);
    onDone();
  };
  const button = (label, kind, question, done) => html`<button type="button" class="button ${kind}" title=${why}
    aria-disabled=${why ? "true" : undefined} aria-busy=${isBusy ? "true" : undefined} onClick=${run(question, done)}>${label}</button>`;
  return html`<${ActionBar} label="Actions on the selected dead letters">
    ${button("Requeue selected …", "", askForTarget, "requeued")}
    ${button("Discard selected …", "danger", askToDiscard, "discarded")}
    <span class="muted" role="status">${counted(deadLetters.length, "dead letter")} selected</span>
  <//>`;
}

function whyNothing(deadLetters) {
  if (!deadLetters.length) return "Select dead letters first.";
  return deadLetters.some(({ seq }) => seq === undefined) ? "not supported by this nsqd" : "";
}

function channelField(channels) {
  const names = channels.map(({ channel }) => channel);
  return names.length > 1 ? [{ name: "channel", label: "From channel", type: "select", options: names, value: names[0] }] : [];
}

/** @returns {Promise<object | null>} the words that the actions have in common */
async function askForTarget(topic, channels, deadLetters) {
  const origins = originsOf(deadLetters);
  const several = origins.length > 1 ? ` They come from several topics (${origins.map((one) => plain(one)).join(", ")}).` : "";
  const values = await ask({
    title: `Requeue ${counted(deadLetters.length, "message")}?`,
    text: `${channels.length ? "" : NEW_CHANNEL_TEXT}Each is published to the topic below, on the nsqd that has it: all channels ` +
      `of that topic get it. Then it is finished in ${topic}.${several} Nothing is lost; if it is interrupted, one may come twice.`,
    fields: [
      { ...TOPIC, name: "target", label: "To topic", value: usualTarget(topic, origins), options: origins, help: "" },
      ...channelField(channels),
    ],
    button: `Requeue ${counted(deadLetters.length, "message")}`,
  });
  return values && { action: "requeue_message", ...values };
}

async function askToDiscard(topic, channels, deadLetters) {
  const lines = deadLetters.slice(0, MOST_NAMED).map((one) => `${one.id}: ${plain(preview(one), SHOWN_CHARACTERS)}`);
  const more = deadLetters.length - lines.length;
  const values = channels.length > 1 ? await ask({
    title: "Discard from which channel?", text: "Each channel has its own messages: the others keep theirs.",
    fields: channelField(channels), button: "Next",
  }) : {};
  const what = counted(deadLetters.length, "message");
  const isSure = values && await confirm({
    title: `Discard ${what}?`,
    text: `${channels.length ? "" : NEW_CHANNEL_TEXT}They are finished in ${topic} without being delivered.`,
    loses: [...lines, ...(more > 0 ? [`and ${counted(more, "other message")}`] : [])],
    button: `Discard ${what}`,
    phrase: deadLetters.length > 1 ? what : "",
  });
  return isSure ? { action: "discard_message", ...values } : null;
}

/** One after the other; says in one notice what failed. */
async function performAll(topic, channels, deadLetters, { channel = channels[0]?.channel ?? NEW_CHANNEL, ...more }, done) {
  const errors = [];
  try {
    if (!channels.length) await makeChannel(topic);
    for (const { node, seq, id } of deadLetters) {
      try {
        errors.push(...(await act({ ...more, topic, channel, node, seq, message: id })).errors);
      } catch (error) {
        errors.push(`${id}: ${explain(error)}`);
      }
    }
  } catch (error) {
    errors.push(explain(error));
  }
  const what = `${counted(deadLetters.length, "message")} ${deadLetters.length === 1 ? "was" : "were"} ${done}`;
  if (errors.length) notify(`Not all of ${what}:`, "warning", errors);
  else notify(`${what}.`);
}

/** A message is finished in a channel: a topic without one gets one, and all its messages are in it when nsqadmin knows it. */
async function makeChannel(topic) {
  await act({ action: "create", topic, channel: NEW_CHANNEL });
  for (let tries = 0; tries < CHANNEL_TRIES; tries += 1) {
    const { rows, nodes } = await get(at("topics", topic));
    const made = rows.find((row) => row.channel === NEW_CHANNEL);
    if (made && made.nodes >= nodes) return;
    await new Promise((resolve) => setTimeout(resolve, CHANNEL_AFTER_MS));
  }
}
