// The page's end of the stream of events, which stream_hub.js has for all tabs.

import { assetUrl, basePath } from "./api.js";
import { ALIVE_EVERY_MS, connect } from "./stream_hub.js";

/** @typedef {{change: (data: any) => void, gone: (data: any) => void, broken: () => void}} Follower */

/** @type {Map<string, Follower>} */
const followers = new Map();
/** @type {MessagePort | null} */
let port = null;

/** A worker that all tabs share, or a stream of our own where the browser has no such worker. */
function hub() {
  if (!globalThis.SharedWorker) return ownHub();
  try {
    const worker = new SharedWorker(assetUrl("stream-hub"), { type: "module" });
    worker.addEventListener("error", () => {
      use(ownHub());
      for (const of of followers.keys()) port.postMessage({ add: of });
    });
    return worker.port;
  } catch {
    return ownHub();
  }
}

function ownHub() {
  const { port1, port2 } = new MessageChannel();
  connect(port2);
  return port1;
}

/** @param {MessagePort} given */
function use(given) {
  port = given;
  port.onmessage = ({ data: { of, name, data } }) => followers.get(of)?.[name](data);
  port.postMessage({ path: `${basePath}/api/v2/events` });
}

/**
 * Events of a view, from its whole state on.
 * @param {string} query of the view @param {Follower} follower @returns {() => void} what ends it
 */
export function follow(query, follower) {
  if (!port) {
    use(hub());
    setInterval(() => followers.size && port.postMessage({ alive: true }), ALIVE_EVERY_MS);
  }
  followers.set(query, follower);
  port.postMessage({ add: query });
  return () => {
    if (followers.get(query) !== follower) return;
    followers.delete(query);
    port.postMessage({ drop: query });
  };
}
