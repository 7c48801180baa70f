// The store of an nsqd: a bucket or directory that has its messages too.

import { bytes, count, duration, name, plain } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { Badge } from "../../parts/state.js";
import { counted } from "../shared/lost_messages.js";
import { Metadata } from "../shared/metadata.js";

const STATES = new Map(Object.entries({ storing: "ok", copying: "accent", away: "warning" }));

/** True if something is wrong with its store. @param {{store?: object | null}} row */
export function hasStoreTrouble({ store }) {
  return Boolean(store && store.troubles.length > 0);
}

/** That it has a store; what is wrong with it is in the title, and said by the sign. @param {{node: object}} props */
export function StoreBadge({ node }) {
  const { store } = node;
  if (!store) return null;
  const isUnwell = hasStoreTrouble(node);
  return html`<${Badge} kind=${isUnwell ? "warning" : "accent"} title=${[...store.troubles, store.url].join("; ")}>
    ${isUnwell && html`<span aria-label="needs a look">▲</span>`} store${store.state === "storing" ? "" : `, ${plain(store.state)}`}<//>`;
}

/** What the page of an nsqd says of its store. @param {{head: object}} props */
export function Store({ head }) {
  const { store } = head;
  if (!store) return null;
  const metadata = [
    ["Address", name(store.url)],
    ["State", html`<${Badge} kind=${STATES.get(store.state) ?? "muted"}>${plain(store.state)}<//>`],
    ["Lag", lagText(store)],
    ["Last change stored", asOf(store)],
    ["Size", `${bytes(store.size_bytes)} in ${counted(store.objects, "object")}`],
    ["Requests today", count(store.requests_today)],
    ["Epoch", count(store.epoch)],
  ];
  return html`<section class="section" aria-labelledby="store">
    <h2 id="store">Store</h2>
    ${hasStoreTrouble(head) && html`<div class="banner warning" role="status">
      ${store.troubles.map((text) => html`<p key=${text}>It ${plain(text)}.</p>`)}</div>`}
    <${Metadata} rows=${metadata} />
    <p class="muted">${store.acks ? "A publisher gets its OK when the store has its message." : "Publishers do not wait for the store."}</p>
  </section>`;
}

function lagText(store) {
  const time = store.lag_s ? duration(store.lag_s * 1e9) : "0 s";
  return `${counted(store.lag_messages, "message")}, ${bytes(store.lag_bytes)}, ${time}`;
}

function asOf({ as_of_s: asOfS }) {
  if (asOfS === null) return "none since nsqd started";
  return asOfS < 1 ? "now" : `${duration(Math.round(asOfS) * 1e9)} ago`;
}
