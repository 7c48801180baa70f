// Lists of which all rows are here: the page itself searches and sorts them, as the query of the address says.

import { html, useEffect, useState } from "../../lib/html.js";
import { setQuery } from "../../lib/route.js";
import { sorted } from "../../parts/table.js";

const SEARCH_AFTER_MS = 250;

/**
 * @param {string | undefined} search
 * @param {...string} texts  of a row
 * @returns {boolean}
 */
export function searchedFor(search, ...texts) {
  const text = (search ?? "").trim().toLowerCase();
  return !text || texts.some((found) => found.toLowerCase().includes(text));
}

/**
 * By which column a table is sorted, and which way.
 * @param {{sort?: string, order?: string}} query
 * @param {string[]} keys  of the columns that can be sorted by
 * @param {string} otherwise  one of them
 * @returns {{sort: string, order: "asc" | "desc"}}
 */
export function orderOf(query, keys, otherwise) {
  const sort = keys.includes(query.sort) ? query.sort : otherwise;
  return { sort, order: query.order === "desc" ? "desc" : "asc" };
}

/**
 * Rows by something that is none of their metrics.
 * @template T
 * @param {T[]} rows
 * @param {(row: T) => unknown} valueOf
 * @param {"asc" | "desc"} order
 * @returns {T[]}
 */
export function sortedBy(rows, valueOf, order) {
  return sorted(rows.map((row) => ({ row, value: valueOf(row) })), "value", order).map(({ row }) => row);
}

const SEVERITIES = ["info", "warning", "error"];

/**
 * Rows by their worst problem, and by the messages that wait in those that have one; of equal ones as they were.
 * @template {{problems: {severity: string}[], depth: number}} T
 * @param {T[]} rows
 * @param {"asc" | "desc"} order
 * @returns {T[]}
 */
export function sortedByHarm(rows, order) {
  const sign = order === "desc" ? -1 : 1;
  const harm = ({ problems }) => Math.max(-1, ...problems.map(({ severity }) => SEVERITIES.indexOf(severity)));
  const depth = (row) => (row.problems.length ? row.depth : 0);
  return [...rows].sort((one, other) => sign * (harm(one) - harm(other) || depth(one) - depth(other)));
}

/**
 * The field for a search, and how many rows it found. It searches a moment after the last key: browsers refuse to
 * change the address too often.
 * @param {{label: string, query: {search?: string}, found?: number, total?: number, status?: string,
 *   children?: unknown, end?: unknown}} props  `status` instead of the numbers; `end` is on the right
 */
export function SearchField({ label, query, found, total, status, children, end }) {
  const text = query.search ?? "";
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return undefined;
    const timer = setTimeout(() => setQuery({ search: typed.trim(), page: "" }), SEARCH_AFTER_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`
    <search class="toolbar">
      <input
        class="input search" type="search" aria-label=${label} placeholder=${label} value=${typed}
        onInput=${(event) => setTyped(event.target.value)}
        onKeyDown=${(event) => event.key === "Escape" && setTyped("")}
        autocomplete="off" spellcheck=${false}
      />
      ${children}
      <span class="muted" role="status">
        ${status ?? (found === total ? `${total} total` : `${found} of ${total}`)}
      </span>
      ${end}
    </search>
  `;
}
