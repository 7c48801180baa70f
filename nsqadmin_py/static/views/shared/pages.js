// Long lists of which all rows are here, a page at a time. Which page, and the order, stay while the view is drawn.

import { html, useState } from "../../lib/html.js";
import { Pager, sorted } from "../../parts/table.js";

/**
 * @template T
 * @param {T[]} rows
 * @param {{what: string, limit?: number}} words  `what`: "nsqds"
 * @returns {{shown: T[], pager: any}}  the rows of the page, and what turns it; no pager where one page is enough
 */
export function usePages(rows, { what, limit = 50 }) {
  const [requested, setRequested] = useState(0);
  const lastPage = Math.floor(Math.max(0, rows.length - 1) / limit) * limit;
  const offset = Math.min(requested, lastPage); // rows may have gone
  const page = { total: rows.length, offset, limit, onPage: setRequested, what };
  return { shown: rows.slice(offset, offset + limit), pager: html`<${Pager} ...${page} />` };
}

/**
 * The order of a table next to the main one of a view, whose order is in the address.
 * @template T
 * @param {T[]} rows
 * @param {string} first  the key of the column that they are sorted by at first, upwards
 * @returns {{inOrder: T[], sort: string, order: "asc" | "desc", onSort: Function}}  what Table takes, and its rows
 */
export function useOrder(rows, first) {
  const [{ sort, order }, setOrder] = useState({ sort: first, order: /** @type {"asc" | "desc"} */ ("asc") });
  return { inOrder: sorted(rows, sort, order), sort, order, onSort: (key, way) => setOrder({ sort: key, order: way }) };
}
