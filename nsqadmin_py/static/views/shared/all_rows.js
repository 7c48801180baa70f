// All rows of a list of which a page is shown.

import { get } from "../../lib/api.js";

// As many as nsqadmin gives at once.
const AT_ONCE = 1000;

/**
 * The rows that fit the words of a list, in its order. One that moves while they are read is there once.
 * @param {string} path @param {Record<string, any>} words  without a position in the list
 * @param {(row: any) => string} keyOf
 * @returns {Promise<any[]>}
 */
export async function allRows(path, words, keyOf) {
  const found = new Map();
  for (let offset = 0; ; offset += AT_ONCE) {
    const { rows, total } = await get(path, { ...words, offset, limit: AT_ONCE });
    for (const row of rows) found.set(keyOf(row), row);
    if (!rows.length || offset + rows.length >= total) return [...found.values()];
  }
}
