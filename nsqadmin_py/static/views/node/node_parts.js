// What the views of nsqds share.

import { clock, duration, name, plain, timeText } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { ActionButton } from "../../parts/actions.js";
import { StateBadge } from "../../parts/state.js";
import { counted } from "../shared/lost_messages.js";

/** An nsqd that answers, and says itself that something is wrong. @param {{health: string}} node */
export function isUnwell(node) {
  return !["", "OK", "NOK - draining"].includes(node.health);
}

const DAY_S = 24 * 3600;

/** True if its metrics are those of an earlier time. @param {{state: string}} node */
export function isSilent(node) {
  return ["slow", "failed"].includes(node.state) || isAway(node);
}

/** True if it is no part of the cluster any more. @param {{state: string}} node */
export function isAway(node) {
  return ["gone", "stopped"].includes(node.state);
}

/** "16:22:54", with the date if that was not in the last 24 hours. @param {number} time_s @param {number} [now_s] */
export function since(time_s, now_s = Date.now() / 1000) {
  return now_s - time_s < DAY_S ? clock(time_s) : timeText(time_s);
}

/**
 * How an nsqd is, and why, where it is not well.
 * @param {{node: {state: string, failure: string, age_s: number | null, health: string}}} props
 */
export function NodeState({ node }) {
  const why = reasonOf(node);
  return html`
    <span><${StateBadge} state=${node.state} />${why && html` <span class="reason">${plain(why)}</span>`}</span>
  `;
}

function reasonOf(node) {
  const reasons = [
    node.state === "failed" && node.failure,
    node.state === "gone" && "no nsqlookupd lists it any more",
    isSilent(node) && (node.seen_s ? `no answer since ${since(node.seen_s)}` : "it has not answered yet"),
    typeof node.draining === "number" && `drains, ${counted(node.draining, "message")} left`,
    node.is_listed === false && !isAway(node) && node.draining === null && "no nsqlookupd lists it",
    isUnwell(node) && node.health,
  ];
  return reasons.filter(Boolean).join("; ");
}

/** Forgets an nsqd that is gone. @param {{node: string, onDone?: () => void}} props */
export function Dismiss({ node, onDone }) {
  return html`<${ActionButton} order=${{ action: "dismiss", node }} label="Dismiss" onDone=${onDone}
    title="Do not show this nsqd any more, unless it comes back" />`;
}

/** The release of NSQ that it behaves like. @param {{node: {version: string, out_of_date: boolean}}} props */
export function Version({ node }) {
  const old = node.out_of_date && html` <span class="badge warning" title="Other nsqds are newer">out of date</span>`;
  return html`${plain(node.version)}${old}`;
}

/** Zone and region, as far as they are given. @returns {string} */
export function zoneText(node) {
  return [node.topology_zone, node.topology_region].filter(Boolean).join(", ");
}

/**
 * For how many seconds an nsqd has been running; null where that is not known.
 * @param {{start_time: number}} node
 * @param {number} timeS
 * @returns {number | null}
 */
export function uptimeS(node, timeS) {
  return node.start_time && timeS ? Math.max(0, timeS - node.start_time) : null;
}

/** @param {{lookups?: Record<string, string>}} props  those that do not answer, and why */
export function FailedLookups({ lookups = {} }) {
  const failed = Object.entries(lookups);
  if (!failed.length) return null;
  return html`
    <div class="banner warning" role="status">
      <p>${counted(failed.length, "nsqlookupd")} ${failed.length === 1 ? "does" : "do"} not answer.
        What no other one knows is missing here.</p>
      <ul>
        ${failed.map(([address, why]) => html`<li key=${address}>${name(address)}: ${plain(why)}</li>`)}
      </ul>
    </div>
  `;
}
