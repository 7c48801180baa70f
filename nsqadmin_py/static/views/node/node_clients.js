// What an nsqd has: its channels, the consumers of them, and the clients that publish to it.

import { at, get } from "../../lib/api.js";
import { age, count, figure, iso, name, tenth } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths } from "../../lib/route.js";
import { Save } from "../../parts/save.js";
import { Failed, Loading, Paused } from "../../parts/state.js";
import { Pager, Table } from "../../parts/table.js";
import { useRates } from "../channel/client_rates.js";
import { CLIENT_COLUMNS, CONSUMER_RATES, keyOfClient, withKnown } from "../channel/clients.js";
import { allRows } from "../shared/all_rows.js";
import { AGE_COLUMNS, metricColumns } from "../shared/columns.js";
import { usePolled } from "../shared/polling.js";

const PAGE_ROWS = 50;
const EVERY_MS = 5000;
const PUBLISHER_RATES = { publish_rate: "publish_count" };

// ---- channels

const [AGE_COLUMN] = AGE_COLUMNS;
const CHANNEL_COLUMNS = [
  {
    key: "topic", title: "Topic", sortable: true, href: (row) => paths.topic(row.topic), cell: (row) => name(row.topic),
  },
  {
    key: "channel", title: "Channel", sortable: true, href: (row) => paths.channel(row.topic, row.channel),
    cell: (row) => name(row.channel), after: (row) => html`<${Paused} when=${row.paused} />`,
  },
  ...metricColumns(["depth"]), AGE_COLUMN,
  ...metricColumns(["message_rate", "finish_rate", "in_flight", "deferred", "requeue_rate", "timeout_rate", "clients"]),
];

/** @param {{node: string}} props */
export function NodeChannels({ node }) {
  const [{ sort, order, offset }, setPage] = useState({ sort: "depth", order: "desc", offset: 0 });
  const { head, rows, time } = useLive("channels", { node, sort, order, offset, limit: PAGE_ROWS });
  const total = time ? head.total : 0;
  return html`<section class="section half" aria-labelledby="node-channels">
    <h2 id="node-channels">Channels</h2>
    <${Table} caption="Channels of this nsqd" captionHidden columns=${CHANNEL_COLUMNS} rows=${rows}
      rowKey=${(row) => JSON.stringify([row.topic, row.channel])} sort=${sort} order=${order}
      onSort=${(key, way) => setPage({ sort: key, order: way, offset: 0 })} empty="It has no channels." />
    <${Pager} total=${total} offset=${offset} limit=${PAGE_ROWS} what="channels"
      onPage=${(next) => setPage({ sort, order, offset: next })} />
  </section>`;
}

// ---- clients

const CONSUMER_COLUMNS = [
  { key: "topic", title: "Topic", cell: (row) => html`<a href=${paths.topic(row.topic)}>${name(row.topic)}</a>` },
  {
    key: "channel", title: "Channel",
    cell: (row) => html`<a href=${paths.channel(row.topic, row.channel)}>${name(row.channel)}</a>`,
  },
];

function publisherColumns(timeS) {
  return [
    { key: "client_id", title: "Client", cell: (row) => name(row.client_id || row.remote_address) },
    { key: "hostname", title: "Host" },
    { key: "remote_address", title: "Address" },
    { key: "user_agent", title: "User agent" },
    { key: "topics", title: "Topics", wide: true, cell: ({ topics }) => html`<span class="names">
      ${topics.map(({ topic, count: number }) => html`<span key=${topic}>
        <a href=${paths.topic(topic)}>${name(topic)}</a> <span class="muted">${count(number)}</span></span>`)}</span>` },
    { key: "publish_rate", title: "Published/s", help: "Messages per second", number: true,
      cell: (row) => figure(row.publish_rate, tenth) },
    { key: "publish_count", title: "Published total", help: "Since it connected", number: true },
    { key: "connect_ts", title: "Connected", number: true, cell: ({ connect_ts: since }) =>
      html`<time datetime=${iso(since)} title=${iso(since)}>${age(timeS - since)}</time>` },
  ];
}

/** @param {{node: string}} props */
export function NodeClients({ node }) {
  const [offset, setOffset] = useState(0);
  const path = `${at("nodes", node)}/clients`;
  const load = () => get(path, { offset, limit: PAGE_ROWS });
  const allConsumers = async () => withKnown(await allRows(path, {}, keyOfConsumer), consumers, keyOfConsumer);
  const { data, message } = usePolled(`${node} ${offset}`, load, EVERY_MS);
  const consumers = useRates(data?.rows, data?.time, keyOfConsumer, CONSUMER_RATES);
  const publishers = useRates(data?.publishers, data?.time, keyOfClient, PUBLISHER_RATES);
  const columns = useMemo(() => [...CONSUMER_COLUMNS, ...CLIENT_COLUMNS.filter(({ key }) => key !== "node")], []);
  const ofPublishers = useMemo(() => publisherColumns(data?.time ?? 0), [data]);
  if (!data) return message ? html`<${Failed} message=${message} />` : html`<${Loading} what="clients" />`;
  return html`
    ${message && html`<${Failed} message=${message} />`}
    <section class="section half" aria-labelledby="consumers">
      <div class="section-head"><h2 id="consumers">Consumers</h2>
        <${Save} name=${`consumers of ${node}`} columns=${columns} rows=${allConsumers} /></div>
      <${Table} caption="Consumers of this nsqd" captionHidden columns=${columns} rows=${consumers}
        rowKey=${keyOfConsumer} empty="No consumer is connected." />
      <${Pager} total=${Math.max(data.total, data.total_publishers)} offset=${offset} limit=${PAGE_ROWS} what="clients"
        onPage=${setOffset} />
    </section>
    <section class="section half" aria-labelledby="publishers">
      <div class="section-head"><h2 id="publishers">Publishers</h2>
        <p class="note">Connections that publish over TCP; nsqd does not count publishers over HTTP.</p></div>
      <${Table} caption="Publishers of this nsqd" captionHidden columns=${ofPublishers} rows=${publishers}
        rowKey=${keyOfClient} empty="No connection has published." />
    </section>`;
}

function keyOfConsumer(row) {
  return JSON.stringify([row.topic, row.channel, keyOfClient(row)]);
}
