// What a table shows, as a file: CSV for spreadsheets, JSON for programs. Made in the browser.

import { explain } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { notify } from "./notices.js";

/** @typedef {import("./table.js").Column} Column */

// A spreadsheet takes a text that begins with one of these for a formula, also behind what it leaves out. Names come from
// other programs.
const FORMULA = /^[\s\p{C}]*[=+\-@\uff1d\uff0b\uff0d\uff20]/u;
const NEEDS_QUOTES = /[",;\t\r\n]|^\s|\s$/;
const LATER_MS = 10_000;
const FORMATS = {
  csv: { word: "CSV", type: "text/csv;charset=utf-8", textOf: csvOf },
  json: { word: "JSON", type: "application/json", textOf: jsonOf },
};

/** The value of a cell; null where it is not known. @param {Column} column @param {any} row */
function valueOf(column, row) {
  const value = column.saved ? column.saved(row) : row[column.key];
  return value === undefined || value === "" ? null : value;
}

/** @param {Column[]} columns */
function savedOf(columns) {
  return columns.filter((column) => column.saved !== null);
}

/** @param {unknown} value */
function cellOf(value) {
  if (value === null) return "";
  if (typeof value !== "string") return String(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/**
 * As in RFC 4180: the heads of the columns, then a line for each row. Numbers are plain; what is not known is empty.
 * @param {Column[]} columns @param {any[]} rows @returns {string}
 */
export function csvOf(columns, rows) {
  const saved = savedOf(columns);
  const head = saved.map(({ title, unit }) => cellOf(unit ? `${title} (${unit})` : title));
  const lines = rows.map((row) => saved.map((column) => cellOf(valueOf(column, row))));
  return [head, ...lines].map((cells) => `${cells.join(",")}\r\n`).join("");
}

/**
 * An object for each row, with the names of the API.
 * @param {Column[]} columns @param {any[]} rows @returns {string}
 */
export function jsonOf(columns, rows) {
  const objects = rows.map((row) =>
    Object.fromEntries(savedOf(columns).map((column) => [column.savedAs ?? column.key, valueOf(column, row)])));
  return `${JSON.stringify(objects, null, 2)}\n`;
}

/** "topics-2026-11-21T162254Z.csv" @param {string} name @param {string} format @param {Date} [now] */
export function fileName(name, format, now = new Date()) {
  const time = now.toISOString().replace(/\.\d+/, "").replaceAll(":", "");
  return `${name.replace(/[^\w.-]+/g, "_")}-${time}.${format}`;
}

/** @param {string} name @param {string} type @param {string} text */
function download(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), LATER_MS);
}

/**
 * @param {object} props
 * @param {string} props.name  of the file, and of what is in it: "topics"
 * @param {Column[]} props.columns  those of the table
 * @param {() => any[] | Promise<any[]>} props.rows  all rows that are left by the filter, in the order of the table
 */
export function Save({ name, columns, rows }) {
  const [isBusy, setBusy] = useState(false);
  const save = async (format) => {
    if (isBusy) return;
    setBusy(true);
    try {
      const { type, textOf } = FORMATS[format];
      download(fileName(name, format), type, textOf(columns, await rows()));
    } catch (error) {
      notify(`The ${FORMATS[format].word} cannot be made. ${explain(error)}`, "error");
    } finally {
      setBusy(false);
    }
  };
  return html`<span class="save" role="group" aria-label=${`Save the ${name}`}>
    <span aria-hidden="true">Save as</span>
    ${Object.entries(FORMATS).map(([format, { word }]) => html`<button key=${format} type="button" class="button small quiet"
      aria-busy=${isBusy ? "true" : undefined} title=${`Save all rows as ${word}`} onClick=${() => save(format)}>${word}</button>`)}
  </span>`;
}
