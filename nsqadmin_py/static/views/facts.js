// A list of words and what they are.

import { Fragment, html } from "../lib/html.js";

/** @param {{facts: [title: string, value: unknown][]}} props */
export function Facts({ facts }) {
  return html`
    <dl class="facts">
      ${facts.map(([title, value]) => html`<${Fragment} key=${title}><dt>${title}</dt><dd>${value}</dd><//>`)}
    </dl>
  `;
}
