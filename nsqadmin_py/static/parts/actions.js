// Buttons that do something: they ask where something is lost, do it, and say what came of it.

import { act, explain, whyNot } from "../lib/api.js";
import { curlOf } from "../lib/curl.js";
import { html, useState } from "../lib/html.js";
import { CopyButton } from "./copy.js";
import { confirm as askBefore } from "./dialog.js";
import { notify } from "./notices.js";

const DONE = new Map(Object.entries({
  create: "has been created", delete: "has been deleted", pause: "is paused", unpause: "is resumed",
  empty: "has been emptied", tombstone: "has been tombstoned", seek: "has been moved", publish: "has the message",
  requeue_dead_letters: "has been requeued", dismiss: "has been dismissed",
  promote: "is being promoted",
}));

/** @param {Record<string, any>} order */
function subject({ topic, channel, node }) {
  if (!topic) return `nsqd ${node}`;
  return channel ? `Channel ${channel} of ${topic}` : `Topic ${topic}`;
}

/**
 * Does it, and says so in a notice.
 * @param {Record<string, any>} order @param {string | ((result: any) => string)} [done] instead of the usual words
 * @returns {Promise<any>} the result, or null where it was not done
 */
export async function perform(order, done) {
  try {
    const result = await act(order);
    const usual = `${subject(order)} ${DONE.get(order.action) ?? "done"}.`;
    const words = typeof done === "function" ? done(result) : done || usual;
    const but = order.node ? "But:" : "But not on all nsqds:";
    if (result.errors?.length) notify(`${words} ${but}`, "warning", result.errors);
    else notify(words);
    return result;
  } catch (error) {
    notify(`${subject(order)}: ${order.action.replaceAll("_", " ")} failed. ${explain(error)}`, "error");
    return null;
  }
}

/**
 * @param {object} props
 * @param {Record<string, any> | (() => any)} props.order or what gives it (null: nothing is done), also as a promise
 * @param {{action: string, topic: string}} [props.of] what a function `order` does, for the permissions of the user
 * @param {any} props.label
 * @param {object | (() => any)} [props.confirm] the question of dialog.js, or what gives it, also as a promise
 * @param {(result: any) => void} [props.onDone]
 * @param {string | ((result: any) => string)} [props.done] what is said then
 * @param {"plain" | "primary" | "danger"} [props.kind]
 * @param {string} [props.unless] why it cannot be done now
 * @param {string} [props.title]
 */
export function ActionButton({ order, of, label, confirm, onDone, done, kind = "plain", unless = "", title = "" }) {
  const [isBusy, setBusy] = useState(false);
  const why = whyNot(of ?? (typeof order === "function" ? {} : order)) || unless;
  const onClick = async () => {
    if (why || isBusy) return;
    setBusy(true);
    try {
      const question = typeof confirm === "function" ? await confirm() : confirm;
      const isKnown = typeof order !== "function";
      if (question && !(await askBefore(isKnown ? { curl: [order], ...question } : question))) return;
      const given = typeof order === "function" ? await order() : order;
      const result = given && (await perform(given, done));
      if (result) onDone?.(result);
    } catch (error) {
      notify(explain(error), "error");
    } finally {
      setBusy(false);
    }
  };
  // Not `disabled`: such a button cannot be focused, and says to no one why.
  return html`<button type="button" class="button ${kind}" aria-disabled=${why ? "true" : undefined}
    aria-busy=${isBusy ? "true" : undefined} title=${why || title} onClick=${onClick}>${label}</button>`;
}

/**
 * Actions of what the view shows. `commands` are offered for a shell, as pairs of a label and an order.
 * @param {{label?: string, commands?: [string, Record<string, any>][], children: any}} props
 */
export function ActionBar({ label = "Actions", commands = [], children }) {
  return html`<div class="action-bar" role="group" aria-label=${label}>${children}
    ${commands.length > 0 && html`<details class="menu">
      <summary class="button">Copy as curl</summary>
      <div class="menu-items">${commands.map(([words, order]) => html`<${CopyButton} key=${words} label=${`curl: ${words}`}
        text=${() => curlOf(order)} />`)}</div>
    </details>`}
  </div>`;
}
