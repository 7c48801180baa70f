// What has been done, and what went wrong. What went wrong, also in part, stays until the user closes it.

import { plain } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Store, useStore } from "../lib/store.js";

const SHOWN_FOR_MS = { ok: 5000 };
const MOST = 5;
const SIGNS = { ok: "✓", warning: "!", error: "✕" };

/** @typedef {{id: number, text: string, kind: "ok" | "warning" | "error", details: string[]}} Notice */

/** @type {Store<Notice[]>} */
const notices = new Store([]);
let lastId = 0;

/**
 * @param {string} text @param {"ok" | "warning" | "error"} [kind] @param {string[]} [details] one a line below it
 */
export function notify(text, kind = "ok", details = []) {
  const id = (lastId += 1);
  notices.set([...notices.value, { id, text, kind, details }].slice(-MOST));
  if (SHOWN_FOR_MS[kind]) setTimeout(() => close(id), SHOWN_FOR_MS[kind]);
}

/** @param {number} id */
function close(id) {
  notices.set(notices.value.filter((notice) => notice.id !== id));
}

/** Closes the latest one. @returns {boolean} whether there was one */
export function closeLast() {
  const last = notices.value.at(-1);
  if (last) close(last.id);
  return Boolean(last);
}

/** Where they are shown; once in the page. */
export function Notices() {
  return html`<div class="notices" role="log" aria-live="polite" aria-label="Notices">
    ${useStore(notices).map((notice) => html`<div key=${notice.id} class="notice ${notice.kind}">
      <span class="notice-sign" aria-hidden="true">${SIGNS[notice.kind]}</span>
      <div class="notice-text">${plain(notice.text)}
        ${notice.details.length > 0 && html`<ul>
          ${notice.details.map((line) => html`<li key=${line}>${plain(line)}</li>`)}</ul>`}
      </div>
      <button type="button" class="icon-button" aria-label="Close" onClick=${() => close(notice.id)}>×</button>
    </div>`)}
  </div>`;
}
