// How much the cluster does, to be read from across the room.
//
// Counted as the counter of Go's nsqadmin counts: all messages that came to channels since their nsqds were started.
// Go's page gets them from /api/counter, which asks all nsqds again; the overview has the same as of its last round.

import { short } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { METRICS } from "../../lib/metrics.js";
import { paths, setQuery, useTitle } from "../../lib/route.js";
import { Charts } from "../../parts/charts.js";
import { Failed, Loading, StateBadge } from "../../parts/state.js";
import { sorted, Table } from "../../parts/table.js";
import { metricColumns } from "../shared/columns.js";
import { usePages } from "../shared/pages.js";
import { orderOf } from "../shared/rows.js";
import { CountUp } from "./count_up.js";

const RATES = ["message_rate", "finish_rate"];
const SORTABLE = ["node", "finish_rate", "message_rate", "channel_messages"];

/** @param {{query: Record<string, string>}} props */
export function CounterView({ query }) {
  useTitle("Counter");
  const cluster = useLive("overview");
  return html`
    <header class="title-row"><h1 tabindex="-1">Counter</h1></header>
    <${Contents} cluster=${cluster} query=${query} />
  `;
}

function Contents({ cluster, query }) {
  const { head, time, message } = cluster;
  if (!time) return message ? html`<${Failed} message=${message} />` : html`<${Loading} />`;
  return html`
    <section class="big-number" aria-label="All nsqds together">
      <${CountUp} value=${head.channel_messages} label="messages processed" />
      <dl class="big-rates">
        ${RATES.map((key) => html`<div key=${key}><dt>${METRICS[key].title}</dt><dd>${short(head[key])}</dd></div>`)}
      </dl>
      <p class="muted">
        All messages that channels have got since their nsqds started. One message counts once for each channel.
      </p>
    </section>
    <${Charts} source=${{}} live=${cluster} metrics=${RATES} title="Over time" />
    <${ByNode} query=${query} />
  `;
}

// ---- by nsqd

function ByNode({ query }) {
  const { rows } = useLive("nodes");
  const all = rows.reduce((sum, row) => sum + row.channel_messages, 0);
  const columns = useMemo(() => columnsOf(all), [all]);
  const { sort, order } = orderOf(query, SORTABLE, "node");
  const { shown, pager } = usePages(sorted(rows, sort, order), { what: "nsqds" });
  return html`
    <section class="section" aria-labelledby="by-node">
      <h2 id="by-node">By nsqd</h2>
      <${Table}
        caption="Messages by nsqd" captionHidden columns=${columns} rows=${shown}
        rowKey=${(row) => row.node} sort=${sort} order=${order}
        onSort=${(key, way) => setQuery({ sort: key, order: way })} empty="No nsqd is known yet."
      />
      ${pager}
    </section>
  `;
}

function columnsOf(all) {
  const share = (row) => html`<${Share} part=${all && row.channel_messages / all} />`;
  return [
    { key: "node", title: "nsqd", sortable: true, href: (row) => paths.node(row.node), after: stateOf },
    { key: "share", title: "Share", hideTitle: true, wide: true, help: "Of all processed messages", cell: share },
    ...metricColumns(["finish_rate", "message_rate", "channel_messages"]),
  ];
}

function stateOf({ state }) {
  return state !== "ok" && html`<${StateBadge} state=${state} />`;
}

function Share({ part }) {
  const percent = `${(100 * part).toFixed(0)} %`;
  const style = { width: `${(100 * part).toFixed(1)}%` };
  return html`<span class="share"><span class="bar" aria-hidden="true"><span class="bar-fill" style=${style}></span></span>
    <span class="figure">${percent}</span></span>`;
}
