// The nsqds that have a topic or a channel, each with its part of it.

import { name } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { paths } from "../../lib/route.js";
import { Badge, Paused, StateBadge } from "../../parts/state.js";
import { Table } from "../../parts/table.js";
import { useOrder, usePages } from "./pages.js";

const PAGE_ROWS = 25;
const FIRST_COLUMNS = [
  {
    key: "node", title: "nsqd", sortable: true, href: (row) => paths.node(row.node), cell: (row) => name(row.node),
    after: (row) => row.hostname && html`<span class="sub">${name(row.hostname)}</span>`,
  },
  { key: "state", title: "State", sortable: true, cell: stateCell },
];

/**
 * @param {object} props
 * @param {object[]} props.rows  of the nsqds
 * @param {object[]} props.columns  those after address and state; a constant or from useMemo
 * @param {string} props.caption
 * @param {string} props.empty
 */
export function NodeTable({ rows, columns, caption, empty }) {
  const all = useMemo(() => [...FIRST_COLUMNS, ...columns], [columns]);
  const { inOrder, ...order } = useOrder(rows, "node");
  const { shown, pager } = usePages(inOrder, { what: "nsqds", limit: PAGE_ROWS });
  return html`<section class="section half" aria-labelledby="nodes">
    <div class="section-head"><h2 id="nodes">nsqds</h2></div>
    <${Table} caption=${caption} captionHidden columns=${all} rows=${shown} rowKey=${(row) => row.node} ...${order}
      empty=${empty} />
    ${pager}
  </section>`;
}

function stateCell({ state, paused, tombstoned }) {
  return html`<span class="marks"><${StateBadge} state=${state} /> <${Paused} when=${paused} />
    ${tombstoned && html` <${Badge} kind="warning" title="nsqlookupds hide it from consumers of the topic, for a while">
      tombstoned<//>`}</span>`;
}
