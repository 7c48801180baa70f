// Latencies from publishing to finishing, where nsqds measure them.

import { latency, name } from "../lib/format.js";
import { html } from "../lib/html.js";
import { paths } from "../lib/route.js";
import { Table } from "../parts/table.js";
import { usePages } from "./pages.js";

const PAGE_ROWS = 25;

/**
 * Of the whole, and of each nsqd; nothing where nobody measures.
 * @param {{head: object, nodes: object[]}} props
 */
export function LatencyTable({ head, nodes }) {
  const { shown, pager } = usePages(nodes.filter((row) => row.latency?.length), { what: "nsqds", limit: PAGE_ROWS });
  const measured = (head.latency ?? []).map((item) => item.quantile);
  if (!measured.length) return null;
  const rows = [{ node: "", latency: head.latency }, ...shown];
  return html`<section class="section" aria-labelledby="latency">
    <div class="section-head">
      <h2 id="latency">End-to-end latency</h2>
      <p class="note">From when a message is published until it is finished. In “All”, the worst of the nsqds.</p>
    </div>
    <${Table} caption="End-to-end latency by nsqd" captionHidden columns=${columnsOf(measured)} rows=${rows}
      rowKey=${(row) => row.node} />
    ${pager}
  </section>`;
}

function columnsOf(quantiles) {
  const node = (row) => (row.node ? html`<a href=${paths.node(row.node)}>${name(row.node)}</a>` : "All");
  return [
    { key: "node", title: "nsqd", cell: node },
    ...quantiles.map((quantile) => ({
      key: String(quantile), title: percentile(quantile), number: true, cell: (row) => latency(valueOf(row, quantile)),
    })),
  ];
}

function valueOf(row, quantile) {
  return row.latency.find((item) => item.quantile === quantile)?.ns;
}

/** "99th", "99.9th" @param {number} quantile @returns {string} */
function percentile(quantile) {
  return `${Number((quantile * 100).toFixed(3))}th`;
}
