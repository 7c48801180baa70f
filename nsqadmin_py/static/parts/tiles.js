// The most important metrics of a view, in a row.

import { html } from "../lib/html.js";

/**
 * @typedef {object} Tile
 * @property {string} label
 * @property {any} value text or vnode
 * @property {string} [title] what it means
 * @property {string} [note] small, below the value
 * @property {"warning" | "error" | boolean} [alert] marks it; true is "warning"
 * @property {string} [href]
 */

/** @param {{items: Tile[], label?: string}} props */
export function Tiles({ items, label = "Metrics" }) {
  return html`<dl class="tiles" aria-label=${label}>
    ${items.map((item) => html`<${One} key=${item.label} ...${item} />`)}</dl>`;
}

/** @param {Tile} tile */
function One({ label, value, title, note, alert, href }) {
  const kind = alert === true ? "warning" : alert || "";
  const isZero = value === "0" || value === 0 || value === "0/s";
  return html`<div class="tile ${kind}" title=${title}>
    <dt>${label}${kind && html`<span class="tile-mark" aria-label="needs a look">▲</span>`}</dt>
    <dd class=${isZero ? "tile-value zero" : "tile-value"}>${href ? html`<a href=${href}>${value}</a>` : value}</dd>
    ${note && html`<dd class="tile-note">${note}</dd>`}
  </div>`;
}
