// Latencies from publishing to finishing, where nsqds measure them.

import { milliseconds, name } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { percentile } from "../../lib/metrics.js";
import { paths } from "../../lib/route.js";
import { Table } from "../../parts/table.js";
import { usePages } from "./pages.js";

const PAGE_ROWS = 25;

/**
 * Of the whole, of each channel of a topic, and of each nsqd; nothing where no one measures.
 * @param {{head: object, nodes: object[], channels?: object[]}} props
 */
export function LatencyTable({ head, nodes, channels = [] }) {
  const measured = (head.latency ?? []).map((item) => item.quantile);
  if (!measured.length) return null;
  return html`<section class="section half" aria-labelledby="latency">
    <div class="section-head">
      <h2 id="latency">End-to-end latency</h2>
      <p class="note">From when a message is published until it is finished. In “All”, the worst of the nsqds.</p>
    </div>
    ${channels.length > 0 && html`<${Part} rows=${channels} all=${head.latency} measured=${measured} title="Channel"
      what="channels" keyOf=${(row) => row.channel} hrefOf=${(row) => paths.channel(row.topic, row.channel)} />`}
    <${Part} rows=${nodes} all=${head.latency} measured=${measured} title="nsqd" what="nsqds"
      keyOf=${(row) => row.node} hrefOf=${(row) => paths.node(row.node)} />
  </section>`;
}

function Part({ rows, all, measured, title, what, keyOf, hrefOf }) {
  const { shown, pager } = usePages(rows.filter((row) => row.latency?.length), { what, limit: PAGE_ROWS });
  const columns = columnsOf(measured, title, keyOf, hrefOf);
  return html`
    <${Table} caption=${`End-to-end latency by ${title.replace("C", "c")}`} captionHidden columns=${columns}
      rows=${[{ latency: all }, ...shown]} rowKey=${(row) => keyOf(row) ?? ""} />
    ${pager}`;
}

function columnsOf(quantiles, title, keyOf, hrefOf) {
  const cell = (row) => (keyOf(row) ? html`<a href=${hrefOf(row)}>${name(keyOf(row))}</a>` : "All");
  return [
    { key: "of", title, cell },
    ...quantiles.map((quantile) => ({
      key: String(quantile), title: `${percentile(quantile)} (ms)`, number: true, cell: (row) => milliseconds(valueOf(row, quantile)),
    })),
  ];
}

function valueOf(row, quantile) {
  return row.latency.find((item) => item.quantile === quantile)?.ns;
}
