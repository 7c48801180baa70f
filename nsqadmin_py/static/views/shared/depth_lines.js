// How many messages waited lately, as a small line in each row of a list. One request has the lines of all rows.

import { get, queryOf } from "../../lib/api.js";
import { count, figure } from "../../lib/format.js";
import { html, useEffect, useMemo } from "../../lib/html.js";
import { Store, useStore } from "../../lib/store.js";
import { Sparkline } from "../../parts/sparkline.js";
import { metricColumns } from "./columns.js";
import { usePolled } from "./polling.js";

const EVERY_MS = 10_000;
const LABEL = "Depth over 10 min";

/** @typedef {Store<Map<string, (number | null)[]>>} Lines  by topic and channel; rows read it, and are not drawn again */

/** @param {{topic: string, channel?: string}} row */
function keyOf({ topic, channel = "" }) {
  return `${topic}/${channel}`;
}

/**
 * The lines of a view, for the column of the depth.
 * @param {"topics" | "channels" | "topic"} view @param {Record<string, any>} words  as in useLive
 * @returns {Lines}
 */
export function useDepthLines(view, words) {
  const lines = useMemo(() => new Store(new Map()), []);
  const query = { view, ...words };
  const { data } = usePolled(queryOf(query), () => get("/sparklines", query), EVERY_MS);
  useEffect(() => {
    if (data) lines.set(new Map(data.lines.map((line) => [keyOf(line), line.depth])));
  }, [data]);
  return lines;
}

/** The column of the depth, with its line. @param {Lines} lines */
export function depthColumn(lines) {
  const [column] = metricColumns(["depth"]);
  return { ...column, cell: (row) => html`<${DepthCell} row=${row} lines=${lines} />` };
}

function DepthCell({ row, lines }) {
  const values = useStore(lines).get(keyOf(row));
  return html`<span class="with-line"><${Sparkline} values=${values} label=${LABEL} />${figure(row.depth, count)}</span>`;
}
