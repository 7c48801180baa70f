// New topics and channels.

import { act, get, session } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { navigate, paths } from "../../lib/route.js";
import { ActionButton } from "../../parts/actions.js";
import { ask } from "../../parts/dialog.js";
import { notify } from "../../parts/notices.js";

const MOST_SEEN = 1000;
const SEEN_TRIES = 20;
const SEEN_EVERY_MS = 150;
const NAME = { type: "text", pattern: "[.a-zA-Z0-9_\\-]{1,64}(#ephemeral)?" };
const NAME_HELP = "1 to 64 letters, digits, dots, _ and -. One that ends in #ephemeral is never written to disk.";
export const TOPIC = { ...NAME, name: "topic", label: "Topic", required: true, help: NAME_HELP };
const CHANNEL = { ...NAME, name: "channel", label: "Channel", required: true, help: NAME_HELP };
export const FIRST_CHANNEL = { ...NAME, name: "channel", label: "Channel (optional)" };

/** Asks for its name, and goes to what it made. */
export function CreateTopic() {
  const onClick = () => create("Create a topic", [TOPIC, FIRST_CHANNEL]);
  return html`<${ActionButton} label="Create a topic" kind="primary" order=${onClick} />`;
}

/** @param {{topic: string}} props */
export function CreateChannel({ topic }) {
  const onClick = () => create(`Create a channel of ${topic}`, [CHANNEL], topic);
  return html`<${ActionButton} label="Create a channel" order=${onClick} of=${{ action: "create", topic }} />`;
}

/** Gives nothing: what there is to do is done while the dialog is open, which says what is wrong with a name. */
async function create(title, fields, of = "") {
  let result = { errors: [] };
  const orderOf = ({ topic = of, channel }) => ({ action: "create", topic, ...(channel ? { channel } : {}) });
  const check = async ({ topic = of, channel }) => {
    result = await act(orderOf({ topic, channel }));
    if (!session().lookupds) await isSeen(topic);
  };
  const values = await ask({ title, fields, button: "Create", check, curl: orderOf });
  if (!values) return null;
  const { topic = of, channel } = values;
  const words = channel ? `Channel ${channel} of ${topic} has been created.` : topicText(topic);
  notify(words, result.errors.length ? "warning" : "ok", result.errors);
  navigate(paths.topic(topic));
  return null;
}

/** Until nsqadmin has asked the nsqds again; not for long where it is slow. */
async function isSeen(topic) {
  for (let tries = 0; tries < SEEN_TRIES; tries += 1) {
    const { rows } = await get("/topics", { search: topic, limit: MOST_SEEN });
    if (rows.some((row) => row.topic === topic)) return;
    await new Promise((resolve) => { setTimeout(resolve, SEEN_EVERY_MS); });
  }
}

function topicText(topic) {
  const then = session().lookupds > 0 ? " An nsqd will have it with its first message or consumer." : "";
  return `Topic ${topic} has been created.${then}`;
}
