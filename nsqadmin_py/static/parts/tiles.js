// The most important metrics of a view, in a row; the others, small, in a line below.

import { html } from "../lib/html.js";

const NOTHING = ["0", "0/s", "–"];

/**
 * @typedef {object} Tile
 * @property {string} label
 * @property {any} value text or vnode
 * @property {string} [title] what it means
 * @property {string} [note] small, below the value
 * @property {"warning" | "error" | boolean} [alert] marks it; true is "warning"
 * @property {string} [href]
 * @property {boolean} [isMinor] small
 */

/** @param {{items: Tile[], label?: string}} props */
export function Tiles({ items, label = "Metrics" }) {
  const minor = items.filter((item) => item.isMinor);
  return html`<div class="tile-rows">
    <dl class="tiles" aria-label=${label}>
      ${items.filter((item) => !item.isMinor).map((item) => html`<${One} key=${item.label} kind="tile" ...${item} />`)}</dl>
    ${minor.length > 0 && html`<dl class="small-tiles" aria-label="${label}, less important">
      ${minor.map((item) => html`<${One} key=${item.label} kind="small-tile" ...${item} />`)}</dl>`}
  </div>`;
}

/** @param {Tile & {kind: string}} props */
function One({ kind, label, value, title, note, alert, href }) {
  const severity = alert === true ? "warning" : alert || "";
  const weight = NOTHING.includes(String(value)) ? "zero" : "";
  return html`<div class="${kind} ${severity}" title=${title}>
    <dt>${label}${severity && html`<span class="tile-mark" role="img" aria-label="needs a look">▲</span>`}</dt>
    <dd class="tile-value ${weight}">${href ? html`<a href=${href}>${value}</a>` : value}</dd>
    ${note && html`<dd class="tile-note">${note}</dd>`}
  </div>`;
}
