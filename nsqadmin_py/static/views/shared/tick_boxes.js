// Rows that are selected by a tick box next to their name.

import { plain } from "../../lib/format.js";
import { html, useEffect, useRef } from "../../lib/html.js";

/** The keys of selected rows after a click on one. @param {Set<string>} chosen @param {string} key @returns {Set<string>} */
export function ticked(chosen, key) {
  const next = new Set(chosen);
  if (!next.delete(key)) next.add(key);
  return next;
}

/** @param {{isTicked: boolean, label: string, onChange: () => void}} props */
export function TickBox({ isTicked, label, onChange }) {
  return html`<label class="tick"><input type="checkbox" checked=${isTicked} aria-label=${plain(label)}
    onChange=${onChange} /></label>`;
}

/** In the head of a table: for all rows of the page. @param {{keys: string[], chosen: Set<string>, onChange: (chosen: Set<string>) => void}} props */
export function TickAll({ keys, chosen, onChange }) {
  const box = useRef(null);
  const number = keys.filter((key) => chosen.has(key)).length;
  const isAll = number > 0 && number === keys.length;
  useEffect(() => {
    box.current.indeterminate = number > 0 && !isAll;
  });
  const flip = () => {
    const others = [...chosen].filter((key) => !keys.includes(key));
    onChange(new Set(isAll ? others : [...others, ...keys]));
  };
  return html`<label class="tick"><input ref=${box} type="checkbox" checked=${isAll} disabled=${!keys.length}
    aria-label="Select all rows of this page" title="All rows of this page" onChange=${flip} /></label>`;
}
