// Lists: real tables, whose rows are cards on a phone. j and k go through all rows of the page, Enter opens one.

import { count, figure, name } from "../lib/format.js";
import { Component, html, useLayoutEffect, useMemo, useRef } from "../lib/html.js";
import { useKeys } from "../lib/keys.js";

/**
 * @typedef {object} Column
 * @property {string} key of the row, and what `onSort` gets
 * @property {string} title
 * @property {(row: any) => any} [cell] a vnode or text; without it a figure (zero dimmed) or a foreign text, made safe
 * @property {boolean} [number] to the right
 * @property {boolean} [sortable]
 * @property {string} [help] title of the head
 * @property {(row: any) => string} [href] makes the cell a link; that of the first such column is the row's
 * @property {(row: any) => any} [before] what stands before the link, and is no part of it, such as a tick box
 * @property {any} [headBefore] the same of the head
 * @property {(row: any) => any} [after] what stands behind the link, and is no part of it
 * @property {"asc" | "desc"} [firstOrder] when it is sorted by; without it names upwards, and metrics downwards
 * @property {((row: any) => any) | null} [saved] what a file has of it, see save.js; without it, what the row has by `key`
 * @property {string} [savedAs] its name in JSON, if that is not the key
 * @property {string} [unit] of what is saved
 * @property {boolean} [isOnlySaved] not in the table
 * @property {boolean} [wide] on a phone, in a separate line
 * @property {boolean} [badges] on a phone, next to the name, and left out where it has none
 * @property {boolean} [preview] takes the width that is left, and is cut at its end
 * @property {boolean} [hideTitle] on a phone, where the cell says itself what it is
 */

const ARROWS = { asc: "▲", desc: "▼" };
const KINDS = ["number", "wide", "preview", "badges"];
const SORTS = { asc: "ascending", desc: "descending" };

/** @param {Column} column */
function firstOrder(column) {
  return column.firstOrder ?? (column.number ? "desc" : "asc");
}

/** @param {{column: Column, sort?: string, order?: string, onSort?: (key: string, order: string) => void}} props */
function Head({ column, sort, order, onSort }) {
  const isSorted = column.sortable && sort === column.key;
  const next = isSorted ? (order === "asc" ? "desc" : "asc") : firstOrder(column);
  const sign = html`<span class="sort-sign" aria-hidden="true">${isSorted ? ARROWS[order] : "↕"}</span>`;
  return html`<th scope="col" role="columnheader" class=${column.number ? "number" : ""} title=${column.help}
      aria-sort=${isSorted ? SORTS[order] : column.sortable ? "none" : undefined}>
    ${column.headBefore}${column.sortable && onSort
      ? html`<button type="button" class="sort" onClick=${() => onSort(column.key, next)}>
          ${column.title}${sign}</button>`
      : column.title}
  </th>`;
}

/** Where rows are cards, there are no heads to press. */
function SortField({ columns, sort, order, onSort }) {
  const sortable = columns.filter((column) => column.sortable);
  if (!onSort || !sortable.length) return null;
  const onChange = (event) => {
    const column = sortable.find(({ key }) => key === event.target.value);
    onSort(column.key, firstOrder(column));
  };
  return html`<div class="table-sort">
    <label>Sort by <select class="input" onChange=${onChange}>${sortable.map(({ key, title }) =>
      html`<option key=${key} value=${key} selected=${key === sort}>${title}</option>`)}</select></label>
    <button type="button" class="button" aria-label="Turn the order round"
      onClick=${() => onSort(sort, order === "asc" ? "desc" : "asc")}>${ARROWS[order]}</button>
  </div>`;
}

/** @param {Column} column @param {any} row */
function content(column, row) {
  if (column.cell) return column.cell(row);
  const value = row[column.key];
  return column.number ? figure(value, count) : name(value);
}

/** Drawn again only when its row, its position or the columns are others, or it is unfolded. */
class Row extends Component {
  state = { isOpen: false };

  shouldComponentUpdate(next, { isOpen }) {
    const { row, columns, rowClass, selected } = this.props;
    return row !== next.row || columns !== next.columns || rowClass !== next.rowClass || selected !== next.selected ||
      isOpen !== this.state.isOpen;
  }

  render({ row, columns, rowClass, selected, unfold }, { isOpen }) {
    const kinds = [rowClass?.(row), selected && "selected"].filter(Boolean).join(" ");
    const linked = unfold ? 0 : columns.findIndex((column) => column.href);
    const onClick = (event) => event.target.closest("a, input, label") || getSelection().type === "Range" ||
      this.setState({ isOpen: !isOpen });
    return html`<tr role="row" class=${kinds} data-row aria-current=${selected ? "true" : undefined}
        tabindex=${linked < 0 ? -1 : undefined} onClick=${unfold && onClick}>
      ${columns.map((column, i) => {
        const cell = content(column, row);
        const linkedCell = column.href
          ? html`<a href=${column.href(row)} data-row-link=${i === linked ? "" : undefined}>${cell}</a>`
          : unfold && i === 0 ? html`<button type="button" class="unfold" aria-expanded=${isOpen} data-row-link>${cell}</button>`
            : cell;
        const shown = html`${column.before?.(row)}${linkedCell}${column.after && html` ${column.after(row)}`}`;
        const kind = KINDS.filter((one) => column[one]).join(" ");
        const label = column.hideTitle ? undefined : column.title;
        return i === 0 ? html`<th scope="row" role="rowheader" class=${kind} data-label=${label}>${shown}</th>`
          : html`<td role="cell" class=${kind} data-label=${label}>${shown}</td>`;
      })}
    </tr>
    ${isOpen && html`<tr role="row" class="unfolded"><td role="cell" colspan=${columns.length}>${unfold(row)}</td></tr>`}`;
  }
}

/**
 * @param {object} props
 * @param {string} props.caption says what it lists; seen unless `captionHidden`
 * @param {boolean} [props.captionHidden] where a heading above says the same
 * @param {Column[]} props.columns best a constant, or from useMemo: with others all rows are drawn again
 * @param {any[]} props.rows
 * @param {(row: any) => string} props.rowKey
 * @param {string} [props.sort] key of the column that they are in the order of
 * @param {"asc" | "desc"} [props.order]
 * @param {(key: string, order: "asc" | "desc") => void} [props.onSort]
 * @param {any} [props.empty] shown instead of rows
 * @param {string} [props.selectedKey]
 * @param {(row: any) => string} [props.rowClass]
 * @param {(row: any) => any} [props.unfold] shown below a row when it is clicked
 * @param {boolean} [props.isSmall] stays a table on a phone: its columns are few and narrow
 */
export function Table({
  caption, captionHidden, columns: all, rows, rowKey, sort, order = "asc", onSort, empty = "Nothing here.", selectedKey,
  rowClass, unfold, isSmall = false,
}) {
  useKeys(KEYS);
  const columns = useMemo(() => (all.some((column) => column.isOnlySaved) ? all.filter((column) => !column.isOnlySaved) : all), [all]);
  const box = useRef(null);
  const focused = document.activeElement;
  useLayoutEffect(() => {
    // A row that moves to another position loses the focus.
    if (focused !== document.activeElement && box.current.contains(focused)) focused.focus({ preventScroll: true });
  });
  // The roles are those that they have anyway, and lose where the style makes them cards.
  return html`<div class="table-box" ref=${box}>
    <${SortField} columns=${columns} sort=${sort} order=${order} onSort=${onSort} />
    <table class=${isSmall ? "table" : "table cards"} role="table">
      <caption class=${captionHidden ? "visually-hidden" : ""}>${caption}</caption>
      <thead role="rowgroup"><tr role="row">
        ${columns.map((column) =>
          html`<${Head} key=${column.key} column=${column} sort=${sort} order=${order} onSort=${onSort} />`)}
      </tr></thead>
      <tbody role="rowgroup">
        ${rows.map((row) => {
          const key = rowKey(row);
          return html`<${Row} key=${key} row=${row} columns=${columns} rowClass=${rowClass} unfold=${unfold}
            selected=${key === selectedKey} />`;
        })}
        ${!rows.length && html`<tr role="row" class="empty-row">
          <td role="cell" colspan=${columns.length}>${empty}</td></tr>`}
      </tbody>
    </table>
  </div>`;
}

/** Goes to another row of the page, whichever table it is in. @param {number} by */
function step(by) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  const here = rows.indexOf(document.activeElement?.closest("[data-row]"));
  const row = rows[here < 0 ? 0 : Math.min(Math.max(here + by, 0), rows.length - 1)];
  const target = row?.querySelector("[data-row-link]") ?? row;
  target?.focus();
  row?.scrollIntoView({ block: "nearest" });
}

const KEYS = {
  j: { text: "Next row", run: () => step(1) },
  k: { text: "Previous row", run: () => step(-1) },
};

/**
 * Rows as one sorts them oneself, where the server does not.
 * @template T @param {T[]} rows @param {string} key @param {"asc" | "desc"} order @returns {T[]}
 */
export function sorted(rows, key, order) {
  const sign = order === "desc" ? -1 : 1;
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return typeof a === "number" ? sign * (a - b) : sign * String(a).localeCompare(String(b), "en", { numeric: true });
  };
  return [...rows].sort((a, b) => compare(a[key], b[key]));
}

/**
 * Pages of a list.
 * @param {{total: number, offset: number, limit: number, onPage: (offset: number) => void, what?: string}} props
 */
export function Pager({ total, offset, limit, onPage, what = "rows" }) {
  if (total <= limit && offset === 0) return null;
  const last = Math.min(offset + limit, total);
  return html`<nav class="pager" aria-label="Pages of ${what}">
    <button type="button" class="button" disabled=${offset <= 0}
      onClick=${() => onPage(Math.max(0, offset - limit))}>← Previous</button>
    <span role="status">${count(Math.min(offset + 1, total))} to ${count(last)} of ${count(total)} ${what}</span>
    <button type="button" class="button" disabled=${last >= total}
      onClick=${() => onPage(offset + limit)}>Next →</button>
  </nav>`;
}
