// The fields that choose messages by their bodies.

import { html } from "../../lib/html.js";
import { FormField } from "../../parts/dialog.js";

const FILTERS = [
  { name: "text", label: "Text in the body", placeholder: "any" },
  { name: "regex", label: "Regular expression", placeholder: "(?i)timeout|refused" },
  { name: "path", label: "JSON path", placeholder: "$.customer.id = 42" },
];

/** @param {{values?: Record<string, string>}} props  what is in them at first */
export function FilterFields({ values = {} }) {
  return FILTERS.map((field) => html`<${FormField} key=${field.name} ...${field} value=${values[field.name] ?? ""} />`);
}

/** @param {FormData | Record<string, string>} fields @returns {{text: string, regex: string, path: string}} */
export function filtersIn(fields) {
  const value = (name) => (fields instanceof FormData ? fields.get(name) : fields[name]) ?? "";
  return { text: value("text"), regex: value("regex"), path: value("path") };
}

/** True if any of them chooses. @param {Record<string, string>} words */
export function isFiltered(words) {
  return FILTERS.some(({ name }) => Boolean(words[name]));
}
