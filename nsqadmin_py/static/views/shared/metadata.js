// A list of words and what they are.

import { Fragment, html } from "../../lib/html.js";

/** @param {{rows: [title: string, value: unknown][]}} props */
export function Metadata({ rows }) {
  return html`
    <dl class="metadata">
      ${rows.map(([title, value]) => html`<${Fragment} key=${title}><dt>${title}</dt><dd>${value}</dd><//>`)}
    </dl>
  `;
}
