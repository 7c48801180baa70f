// Who consumes a channel: asked of the nsqds now, and again while the view is visible.

import { at, get } from "../../lib/api.js";
import { count, duration, iso, figure, name, plain, tenth } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { METRICS } from "../../lib/metrics.js";
import { paths } from "../../lib/route.js";
import { Save } from "../../parts/save.js";
import { Failed, Loading } from "../../parts/state.js";
import { Pager, Table } from "../../parts/table.js";
import { allRows } from "../shared/all_rows.js";
import { usePolled } from "../shared/polling.js";
import { useRates } from "./client_rates.js";

const PAGE_ROWS = 50;
const EVERY_MS = 5000;
const WEB = /^https?:\/\//i;

/** @param {{topic: string, channel: string}} props */
export function Clients({ topic, channel }) {
  const [offset, setOffset] = useState(0);
  const path = at("topics", topic, "channels", channel, "clients");
  const load = () => get(path, { offset, limit: PAGE_ROWS });
  const { data, message } = usePolled(`${topic} ${channel} ${offset}`, load, EVERY_MS);
  const rows = useRates(data?.rows, data?.time, keyOfClient, CONSUMER_RATES);
  return html`<section class="section" aria-labelledby="clients">
    <div class="section-head">
      <h2 id="clients">Clients</h2>
      ${data && html`<p class="note">${count(data.total)} connected</p>
        <${Save} name=${`clients of ${topic} ${channel}`} columns=${CLIENT_COLUMNS}
          rows=${async () => withKnown(await allRows(path, {}, keyOfClient), rows)} />`}
    </div>
    ${message && html`<${Failed} message=${message} />`}
    ${data?.message && html`<p class="badge warning" role="status">${plain(data.message)}</p>`}
    ${!data && !message && html`<${Loading} what="clients" />`}
    ${data && html`
      <${Table} caption="Clients" captionHidden columns=${CLIENT_COLUMNS} rows=${rows} rowKey=${keyOfClient}
        empty="No consumer is connected." />
      <${Pager} total=${data.total} offset=${offset} limit=${PAGE_ROWS} onPage=${setOffset} what="clients" />
    `}
  </section>`;
}

/** The rates of the shown clients, which those that were read just now do not have. */
export function withKnown(clients, shown, keyOf = keyOfClient) {
  const known = new Map(shown.map((row) => [keyOf(row), row]));
  return clients.map((client) => ({ ...known.get(keyOf(client)), ...client }));
}

/** @param {Record<string, any>} client */
export function keyOfClient(client) {
  return `${client.node} ${client.remote_address} ${client.connect_ts}`;
}

// Rates of a consumer, and the counts that they are of.
export const CONSUMER_RATES = { client_rate: "message_count", client_finish_rate: "finish_count" };

export const CLIENT_COLUMNS = [
  {
    key: "client_id", title: "Client", saved: (client) => client.client_id || client.remote_address,
    cell: (client) => html`${name(client.client_id || client.remote_address)} <${Marks} client=${client} />`,
  },
  { key: "hostname", title: "Host" },
  { key: "remote_address", title: "Address" },
  { key: "user_agent", title: "User agent" },
  { key: "node", title: "nsqd", cell: (client) => html`<a href=${paths.node(client.node)}>${name(client.node)}</a>` },
  {
    key: "connected", title: "Connected", number: true, unit: "s", saved: (client) => Math.round(client.connected / 1e9),
    cell: ({ connect_ts: since, connected }) =>
      html`<time datetime=${iso(since)} title=${iso(since)}>${duration(connected)}</time>`,
  },
  { key: "ready_count", title: "RDY", help: "How many messages it is ready to take at once", number: true },
  { key: "in_flight_count", title: METRICS.in_flight.title, number: true },
  { key: "client_rate", title: METRICS.message_rate.title, help: "Messages that it gets, per second", number: true,
    cell: (client) => figure(client.client_rate, tenth) },
  { key: "client_finish_rate", title: METRICS.finish_rate.title, help: "By it (FIN), per second", number: true,
    cell: (client) => figure(client.client_finish_rate, tenth) },
  { key: "finish_count", title: "Finished total", help: "Since it connected", number: true },
  { key: "requeue_count", title: METRICS.requeued.title, help: "Since it connected", number: true },
  { key: "message_count", title: METRICS.messages.title, help: "Sent to it since it connected", number: true },
];

// When, the word, and what it means.
const MARKS = [
  [(client) => client.tls, () => "TLS", tlsText],
  [(client) => client.snappy, () => "snappy", () => "Compressed with Snappy"],
  [(client) => client.deflate, () => "deflate", () => "Compressed with Deflate"],
  [
    (client) => client.sample_rate > 0, (client) => `${client.sample_rate} %`,
    () => "It gets only a sample of the messages",
  ],
  [(client) => client.topology_zone || client.topology_region, zoneText, nearText],
];

function Marks({ client }) {
  return html`<span class="marks">
    ${MARKS.filter(([holds]) => holds(client)).map(([, word, why], i) => html`
      <span key=${i} class="badge muted" title=${plain(why(client))}>${plain(word(client))}</span>
    `)}
    ${client.authed && html`<${Identity} client=${client} />`}
  </span>`;
}

function Identity({ client }) {
  const who = html`${"auth: "}${name(client.auth_identity || "anonymous")}`;
  // Whoever keeps the accounts says where one is: a link only where that is a page.
  return WEB.test(client.auth_identity_url)
    ? html`<a class="badge muted" href=${client.auth_identity_url} target="_blank" rel="noopener noreferrer">${who}</a>`
    : html`<span class="badge muted" title="It has logged in">${who}</span>`;
}

function tlsText(client) {
  return [client.tls_version, client.tls_cipher_suite].filter(Boolean).join(", ") || "Encrypted";
}

function zoneText(client) {
  return [client.topology_region, client.topology_zone].filter(Boolean).join("/");
}

function nearText(client) {
  if (client.topology_region !== client.node_topology_region) return "Not known to be in the region of its nsqd";
  const isNear = client.topology_zone === client.node_topology_zone;
  return isNear ? "In the zone of its nsqd" : "In another zone than its nsqd";
}
