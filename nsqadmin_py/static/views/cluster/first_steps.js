// What to try where there is no topic yet.

import { get } from "../../lib/api.js";
import { html } from "../../lib/html.js";
import { paths } from "../../lib/route.js";
import { CopyButton } from "../../parts/copy.js";
import { usePolled } from "../shared/polling.js";

const ASK_EVERY_MS = 5000;
// Hosts are said by programs of others, and this is pasted into shells: nothing that means anything there.
const HOST = /^[\w.:-]+$/;
const USUAL = { host: "127.0.0.1", tcp_port: 4150, http_port: 4151 };

export function FirstSteps() {
  const { data } = usePolled("nodes", () => get("/nodes"), ASK_EVERY_MS);
  const nodes = data?.rows ?? [];
  const isAnybodyThere = nodes.some((node) => node.state === "ok");
  return html`<section class="panel first-steps section" aria-labelledby="first-steps">
    <h2 id="first-steps">No topics yet</h2>
    ${data && !isAnybodyThere && html`<p class="wrong">
      ${nodes.length ? "No nsqd answers." : "No nsqd is known yet."} See <a href=${paths.nodes()}>Nodes</a>.
    </p>`}
    <p>The first message that is published to a topic creates it. From a shell:</p>
    <${Command} text=${toNsq(addressOf(nodes))} />
    <p>or over HTTP:</p>
    <${Command} text=${curl(addressOf(nodes))} />
    <p>A consumer creates a channel when it subscribes. This one prints the messages:</p>
    <${Command} text=${tail(addressOf(nodes))} />
  </section>`;
}

function addressOf(nodes) {
  const node = nodes.find((found) => found.state === "ok" && !found.standby && HOST.test(found.broadcast_address));
  if (!node) return USUAL;
  const host = node.broadcast_address;
  return { host: host.includes(":") ? `[${host}]` : host, tcp_port: node.tcp_port, http_port: node.http_port };
}

function toNsq({ host, tcp_port: port }) {
  return `echo 'hello' | to-nsq --topic=test --nsqd-tcp-address=${host}:${port}`;
}

function curl({ host, http_port: port }) {
  return `curl -d 'hello' 'http://${host}:${port}/pub?topic=test'`;
}

function tail({ host, tcp_port: port }) {
  return `nsq-tail --topic=test --nsqd-tcp-address=${host}:${port}`;
}

function Command({ text }) {
  return html`<div class="command">
    <pre class="pre grow" tabindex="0">${text}</pre><${CopyButton} text=${text} label="Copy" />
  </div>`;
}
