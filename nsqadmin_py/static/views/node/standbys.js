// Primaries and their standbys: role, how far behind, and the promotion of a standby.

import { bytes, count, duration, name, plain } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { METRICS } from "../../lib/metrics.js";
import { paths } from "../../lib/route.js";
import { ActionButton } from "../../parts/actions.js";
import { Badge } from "../../parts/state.js";
import { Table } from "../../parts/table.js";
import { counted } from "../shared/lost_messages.js";
import { Metadata } from "../shared/metadata.js";
import { promote } from "../shared/questions.js";

const STATES = new Map(Object.entries({
  following: "ok", damaged: "warning", copying: "warning", connecting: "warning", waiting: "error", failed: "error", missing: "error",
}));

/** True if any nsqd has a standby, or is one. @param {{role: string}[]} rows */
export function hasRoles(rows) {
  return rows.some(({ role }) => role !== "");
}

/**
 * Its role; what is wrong with it is in the title, and said by the sign.
 * @param {{node: object, state?: string}} props
 */
export function RoleBadge({ node, state = "" }) {
  if (!node.role) return null;
  const isUnwell = node.troubles.length > 0;
  const epoch = node.epoch === null ? "" : `Epoch ${count(node.epoch)}`;
  return html`<${Badge} kind=${isUnwell ? "warning" : "accent"} title=${[...node.troubles, epoch].join("\n")}>
    ${isUnwell && html`<span aria-label="needs a look">▲</span>`} ${node.role}${state && `, ${plain(state)}`}<//>`;
}

/** The role next to a name, and whose standby it is. @param {{node: object}} props */
export function RoleBeside({ node }) {
  const { standby, standbys } = node;
  return html`<${RoleBadge} node=${node} state=${standby?.state} />
    ${standby?.primary && html`<span class="sub">of ${name(standby.primary)}</span>`}
    ${standbys && html`<span class="sub">${followingText(standbys.list)}</span>`}`;
}

function followingText(list) {
  if (!list.length) return "no standby";
  const following = list.filter(({ state }) => state === "following" || state === "damaged").length;
  return `${count(following)} of ${counted(list.length, "standby", "standbys")}`;
}

/** How far behind, in messages, bytes and time. @param {object} row */
export function lagCell(row) {
  if (row.lag_s === null) return html`<span class="zero">–</span>`;
  return html`<span class=${row.lag_messages || row.lag_s ? "figure" : "figure zero"}>${count(row.lag_messages)}</span>
    <span class="sub">${bytes(row.lag_bytes)}, ${seconds(row.lag_s)}</span>`;
}

function lagText(row) {
  return `${counted(row.lag_messages, "message")}, ${bytes(row.lag_bytes)}, ${seconds(row.lag_s)}`;
}

function seconds(value) {
  return value ? duration(value * 1e9) : "0 s";
}

/** What the page of an nsqd says of its role. @param {{head: object}} props */
export function Role({ head }) {
  if (head.standby) return html`<${AsStandby} head=${head} standby=${head.standby} />`;
  return head.standbys && html`<${AsPrimary} head=${head} standbys=${head.standbys} />`;
}

function Troubles({ texts }) {
  return texts.length > 0 && html`<div class="banner warning" role="status">
    ${texts.map((text) => html`<p key=${text}>It ${plain(text)}.</p>`)}</div>`;
}

function AsStandby({ head, standby }) {
  const metadata = [
    ["Primary", standby.primary ? html`${name(standby.primary)}, ${standby.primary_answers ? "which answers" : "which does not answer nsqadmin"}`
      : "none: no nsqd has the lease"],
    ["State", html`<${Badge} kind=${STATES.get(standby.state) ?? "muted"}>${plain(standby.state)}<//>`],
    ["Copy", standby.is_complete ? "complete" : "not complete: it cannot be promoted"],
    ["Lag", html`${lagText(standby)}${isOld(standby) && html` <span class="muted">${asOf(standby)}</span>`}`],
    ["Epoch", count(head.epoch)],
    ...(standby.set_aside_messages ? [["Set aside", `${counted(standby.set_aside_messages, "message")} that its primary does not have`]] : []),
  ];
  return html`<section class="section" aria-labelledby="role">
    <div class="section-head"><h2 id="role">Standby</h2>
      <${ActionButton} label="Promote" kind="danger" order=${{ action: "promote", node: head.node }}
        confirm=${() => promote(head.node)} unless=${whyNotPromoted(standby)}
        title="Make this standby the primary" /></div>
    <${Troubles} texts=${head.troubles} />
    ${whyNotPromoted(standby) && html`<p class="muted">${whyNotPromoted(standby)}</p>`}
    <${Metadata} rows=${metadata} />
    <p class="muted">It serves no topics and no clients until it is promoted.</p>
  </section>`;
}

/** Why nsqd would refuse. */
function whyNotPromoted({ is_complete: isComplete, lease_decides: isLeased }) {
  if (isLeased) return "A lease decides which nsqd is the primary (--lease). To move it, stop the primary.";
  return isComplete ? "" : "Its copy is not complete: messages and channels would be missing.";
}

function isOld({ as_of_s: asOfS }) {
  return asOfS === null || asOfS >= 1;
}

function asOf({ as_of_s: asOfS }) {
  if (asOfS === null) return "as of never: it has heard nothing yet";
  return asOfS < 1 ? "now" : `as of ${duration(Math.round(asOfS) * 1e9)} ago`;
}

const COLUMNS = [
  { key: "node", title: "Standby", href: (row) => paths.node(row.node), cell: (row) => name(row.node) },
  { key: "state", title: "State", cell: (row) => html`<${Badge} kind=${STATES.get(row.state) ?? "muted"}>${plain(row.state)}<//>` },
  { key: "lag_messages", title: METRICS.lag_messages.title, number: true, cell: (row) => count(row.lag_messages) },
  { key: "lag_bytes", title: METRICS.lag_bytes.title, number: true, cell: (row) => bytes(row.lag_bytes) },
  { key: "lag_s", title: METRICS.lag_s.title, number: true, cell: (row) => seconds(row.lag_s) },
  { key: "as_of", title: "As of", cell: asOf },
];

function AsPrimary({ head, standbys }) {
  const acks = standbys.acks ? `A publisher gets its OK when ${counted(standbys.acks, "standby has", "standbys have")} its message.`
    : "Publishers do not wait for standbys.";
  return html`<section class="section" aria-labelledby="role">
    <h2 id="role">Standbys</h2>
    <${Troubles} texts=${head.troubles} />
    <p class="muted">${acks} Epoch ${count(head.epoch)}.</p>
    <${Table} caption="Standbys of this nsqd" captionHidden columns=${COLUMNS} rows=${standbys.list}
      rowKey=${(row) => row.node} empty="No standby follows it." />
  </section>`;
}
