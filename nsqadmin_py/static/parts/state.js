// How things are: loading, failed, gone, live, paused.

import { clock, name, plain } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @param {{what?: string}} props */
export function Loading({ what = "" }) {
  return html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading ${what}…</p>`;
}

/** @param {{message: string, retry?: () => void}} props */
export function Failed({ message, retry }) {
  return html`<div class="panel failed" role="alert">
    <p>${plain(message)}</p>
    ${retry && html`<button type="button" class="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/**
 * Of what is not there (any more).
 * @param {{what: string, named?: string}} props `what` is "The topic", and `named` its name
 */
export function Gone({ what, named = "" }) {
  return html`<div class="panel empty" role="status">
    <h2>Not found</h2>
    <p>${what} ${named && name(named)} does not exist, or not any more. It appears here as soon as it does.</p>
  </div>`;
}

/** Nothing to show, and what to do about it. @param {{title: string, children?: any}} props */
export function Empty({ title, children }) {
  return html`<div class="panel empty"><h2>${title}</h2>${children}</div>`;
}

const LIVE = new Map(Object.entries({
  connecting: ["muted", "connecting"],
  live: ["ok", "live"],
  gone: ["ok", "live"],
  lost: ["error", "no connection"],
}));

/**
 * Whether metrics are of now; where they are not, of when.
 * @param {{state: string, time?: number, message?: string}} props
 */
export function LiveBadge({ state, time = 0, message = "" }) {
  const [kind, word] = LIVE.get(state) ?? ["muted", ""];
  const since = state === "lost" && time ? `, metrics of ${clock(time)}` : "";
  return html`<span class="badge live-badge ${state} ${kind}" title=${plain(message)}>
    <span class="dot" aria-hidden="true"></span><span class="live-word">${word}${since}</span>
  </span>`;
}

const NODE_STATES = new Map(Object.entries({
  ok: ["ok", "✓", "answers"],
  slow: ["warning", "…", "does not answer in time; its metrics are old"],
  failed: ["error", "✕", "does not answer"],
  gone: ["error", "✕", "does not answer, and no nsqlookupd lists it any more"],
  stopped: ["muted", "■", "was stopped on purpose"],
  new: ["muted", "·", "has not been asked yet"],
}));

/** Of an nsqd. @param {{state: string, title?: string}} props */
export function StateBadge({ state, title = "" }) {
  const [kind, sign, meaning] = NODE_STATES.get(state) ?? ["muted", "?", ""];
  return html`<span class="badge ${kind}" title=${plain(title || meaning)}>
    <span aria-hidden="true">${sign}</span> ${plain(state)}
  </span>`;
}

/** Shown only where something is paused; `text` says what. @param {{when?: boolean, text?: string}} props */
export function Paused({ when = true, text = "paused" }) {
  return when ? html`<span class="badge warning"><span aria-hidden="true">❚❚</span> ${text}</span>` : null;
}

/** @param {{kind?: "ok" | "warning" | "error" | "muted" | "accent", title?: string, children?: any}} props */
export function Badge({ kind = "muted", title = "", children }) {
  return html`<span class="badge ${kind}" title=${plain(title)}>${children}</span>`;
}
