// All nsqds: how they are, and what they hold.

import { session } from "../../lib/api.js";
import { count, duration, figure, name, plain } from "../../lib/format.js";
import { html, useMemo } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths, setQuery, useTitle } from "../../lib/route.js";
import { Save } from "../../parts/save.js";
import { Failed, Loading } from "../../parts/state.js";
import { sorted, Table } from "../../parts/table.js";
import { Tiles } from "../../parts/tiles.js";
import { metricColumns } from "../shared/columns.js";
import { flowTiles } from "../shared/flow_tiles.js";
import { counted } from "../shared/lost_messages.js";
import { usePages } from "../shared/pages.js";
import { orderOf, searchedFor, SearchField, sortedBy } from "../shared/rows.js";
import { Dismiss, FailedLookups, isAway, isSilent, isUnwell, NodeState, uptimeS, Version, zoneText } from "./node_parts.js";
import { hasRoles, lagCell, RoleBeside } from "./standbys.js";
import { hasStoreTrouble, StoreBadge } from "./store.js";

const SHOWN = ["in_flight", "message_rate", "finish_rate", "clients"];
const SORTABLE = ["node", "state", "version", "project_version", "topics", "depth", ...SHOWN, "uptime", "place", "lookups", "lag"];
const FLOWS = 3; // depth, in and finished
const MINUTE_S = 60;
const MOST_IN_A_LINE = 30;

const LOOKUPS = {
  key: "lookups", title: "nsqlookupds", number: true, sortable: true, help: "How many nsqlookupds know it",
  cell: lookupsCell, saved: (row) => (isAway(row) ? null : row.lookups.length),
};

const LAG = {
  key: "lag", title: "Lag", number: true, sortable: true, cell: lagCell, savedAs: "lag_messages", unit: "messages",
  saved: (row) => row.lag_messages,
  help: "Messages, bytes and time that a standby is behind; of a primary, those of the standby that is behind most",
};

const FILTERS = new Map([
  ["", ["Any state", () => true]],
  ["attention", ["Need attention", needsAttention]],
  ["ok", ["Ok", (row) => row.state === "ok"]],
  ["slow", ["Slow", (row) => row.state === "slow"]],
  ["failed", ["Failed", (row) => row.state === "failed"]],
  ["gone", ["Gone", (row) => row.state === "gone"]],
]);
const ROLE_FILTERS = new Map([
  ["primary", ["Primaries", (row) => row.role === "primary"]],
  ["standby", ["Standbys", (row) => row.role === "standby"]],
]);

// What a column sorts by, where that is not its value; of states the worst comes first.
const STATES = ["gone", "failed", "slow", "new", "unwell", "ok", "stopped"];
const VALUES = new Map([
  ["state", (row) => STATES.indexOf(row.state === "ok" && isUnwell(row) ? "unwell" : row.state)],
  ["place", zoneText],
  ["lookups", (row) => row.lookups.length],
  ["uptime", (row) => -row.start_time],
  ["lag", (row) => row.lag_s ?? -1],
]);

function needsAttention(row) {
  const isTroubled = row.troubles.length > 0 || hasStoreTrouble(row);
  return row.state !== "ok" || isUnwell(row) || row.out_of_date || isTroubled;
}

/** @param {{query: Record<string, string>}} props */
export function NodesView({ query }) {
  useTitle("Nodes");
  const live = useLive("nodes");
  return html`
    <header class="title-row"><h1 tabindex="-1">Nodes</h1></header>
    <${Contents} live=${live} query=${query} />
  `;
}

function Contents({ live, query }) {
  const { head, rows, time, message } = live;
  if (!time) return message ? html`<${Failed} message=${message} />` : html`<${Loading} />`;
  return html`
    <${FailedLookups} lookups=${head.failed_lookups} />
    <${StateTiles} rows=${rows} />
    <${List} rows=${rows} timeS=${time} query=${query} />
  `;
}

function StateTiles({ rows }) {
  const { head } = useLive("overview");
  const flows = head.depth === undefined ? [] : flowTiles(head).slice(0, FLOWS);
  return html`<${Tiles} items=${[...tilesOf(rows), ...flows]} label="All nsqds" />`;
}

function tilesOf(rows) {
  const inState = (state) => rows.filter((row) => row.state === state).length;
  const standbys = rows.filter((row) => row.role === "standby");
  const versions = [...new Set(rows.filter((row) => !isAway(row)).map(versionOf))];
  return [
    { label: "nsqds", value: count(rows.length - inState("gone") - inState("stopped")) },
    {
      label: "Slow", value: count(inState("slow")), isMinor: !inState("slow"), alert: inState("slow") > 0,
      title: "Their metrics are old",
    },
    {
      label: "Failed", value: count(inState("failed")), isMinor: !inState("failed"), alert: inState("failed") > 0 && "error",
      title: "They do not answer",
    },
    {
      label: "Gone", value: count(inState("gone")), isMinor: !inState("gone"), alert: inState("gone") > 0 && "error",
      title: "They do not answer, and no nsqlookupd lists them any more",
    },
    ...(hasRoles(rows) ? [{
      label: "Standbys", value: count(standbys.length), alert: rows.some((row) => row.role && row.troubles.length > 0),
      title: "nsqds that keep a copy of another one, and serve no clients",
    }] : []),
    versions.length === 1 ? { label: "Version", value: versions[0], isMinor: true }
      : { label: "Versions", value: count(versions.length), title: versions.join(", "), isMinor: true },
  ];
}

/** "1.0.1 (NSQ 1.3.0)", of Go's nsqd "1.3.0". */
function versionOf({ project_version: own, version }) {
  return own ? `${own} (NSQ ${version})` : version;
}

// ---- the list

function List({ rows, timeS, query }) {
  const found = filtered(rows, query);
  const { sort, order } = orderOf(query, SORTABLE, "node");
  const valueOf = VALUES.get(sort);
  const inOrder = valueOf ? sortedBy(found, valueOf, order) : sorted(found, sort, order);
  const { shown, pager } = usePages(inOrder, { what: "nsqds" });
  const minute = Math.floor(timeS / MINUTE_S);
  const [hasZones, areRoles] = [rows.some(zoneText), hasRoles(rows)];
  const columns = useMemo(
    () => columnsOf(minute * MINUTE_S, hasZones, areRoles),
    [minute, hasZones, areRoles],
  );
  return html`
    <${SearchField} label="Search nsqds" query=${query} found=${found.length} total=${rows.length}
      end=${html`<${Save} name="nodes" columns=${columns} rows=${() => inOrder} />`}>
      <${StateFilter} chosen=${query.state} hasRoles=${areRoles} />
    <//>
    <${Table}
      caption="nsqds" captionHidden columns=${columns} rowKey=${(row) => row.node}
      rows=${shown}
      sort=${sort} order=${order} onSort=${(key, way) => setQuery({ sort: key, order: way })}
      empty=${rows.length ? "No nsqd matches." : "No nsqd is known yet."}
    />
    ${pager}
  `;
}

function StateFilter({ chosen = "", hasRoles: areRoles }) {
  const filters = [...FILTERS, ...(areRoles ? ROLE_FILTERS : [])];
  return html`
    <select
      class="input" aria-label="State" value=${chosen} onChange=${(event) => setQuery({ state: event.target.value })}
    >
      ${filters.map(([key, [title]]) => html`<option key=${key} value=${key}>${title}</option>`)}
    </select>
  `;
}

function filtered(rows, query) {
  const [, isSelected] = FILTERS.get(query.state) ?? ROLE_FILTERS.get(query.state) ?? FILTERS.get("");
  return rows.filter((row) => {
    const texts = [row.node, row.hostname, row.broadcast_address, row.version, zoneText(row), row.failure];
    return isSelected(row) && searchedFor(query.search, ...texts);
  });
}

function columnsOf(timeS, hasZones, areRoles) {
  return [
    {
      key: "node", title: "nsqd", sortable: true,
      href: (row) => paths.node(row.node), cell: nameCell, after: besideName,
    },
    { key: "hostname", title: "Host", isOnlySaved: true },
    { key: "state", title: "State", sortable: true, wide: true, cell: stateCell },
    ...(areRoles ? [LAG] : []),
    { key: "version", title: "Version", sortable: true, cell: (row) => html`<${Version} node=${row} />` },
    { key: "project_version", title: "nsqd-py", sortable: true, cell: (row) => plain(row.project_version || "–") },
    { key: "topics", title: "Topics", number: true, sortable: true, cell: topicsCell },
    ...metricColumns(["depth", ...SHOWN]),
    {
      key: "uptime", title: "Uptime", number: true, sortable: true,
      unit: "s", saved: (row) => upTimeOf(row, timeS), cell: (row) => minutesText(upTimeOf(row, timeS)),
    },
    ...(hasZones ? [{ key: "place", title: "Zone, region", sortable: true, saved: zoneText, cell: (row) => name(zoneText(row)) }] : []),
    ...(session().lookupds > 0 ? [LOOKUPS] : []),
  ];
}

/** How many, and the first of them. */
function topicsCell({ node, topics, topic_names: names }) {
  const more = (topics ?? 0) - names.length;
  return html`${figure(topics)}${names.length > 0 && html`<span class="sub some-names">
    ${names.map((topic) => html`<a key=${topic} href=${paths.topic(topic)}>${name(topic)}</a> `)}
    ${more > 0 && html`<a href=${paths.node(node)}>${count(more)} more</a>`}</span>`}`;
}

/** In s; null of an nsqd that does not answer. */
function upTimeOf(row, timeS) {
  const upS = isSilent(row) ? null : uptimeS(row, timeS);
  return upS === null ? null : Math.round(upS);
}

function minutesText(upS) {
  if (upS === null) return duration(null);
  return upS < MINUTE_S ? "< 1 min" : duration(Math.floor(upS / MINUTE_S) * MINUTE_S * 1e9);
}

function stateCell(row) {
  return html`<${NodeState} node=${row} />${isAway(row) && html` <${Dismiss} node=${row.node} />`}`;
}

function nameCell({ node }) {
  return html`<span class=${node.length > MOST_IN_A_LINE ? "" : "nowrap"}>${name(node)}</span>`;
}

function besideName(row) {
  const { hostname, tcp_port: port, tombstones } = row;
  const more = [hostname, port && `TCP ${port}`].filter(Boolean);
  return html`
    ${tombstones.length > 0 && html`<span class="badge muted">${counted(tombstones.length, "tombstone")}</span>`}
    ${more.length > 0 && html`<span class="sub">${name(more.join(", "))}</span>`}
    <${RoleBeside} node=${row} />
    <${StoreBadge} node=${row} />
  `;
}

/** One that some nsqlookupd does not know is missing for the consumers that ask there. */
function lookupsCell({ lookups, state, role }) {
  if (isAway({ state }) || role === "standby") return duration(null);
  const all = session().lookupds;
  if (lookups.length >= all) return html`<span title=${lookups.join("\n")}>${figure(lookups.length)}</span>`;
  return html`<span class="badge warning" title=${lookups.join("\n")}>${lookups.length} of ${all}</span>`;
}
