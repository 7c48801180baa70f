// One stream of events for all views that the page shows: browsers open only six connections to a host over HTTP/1.1.

import { basePath } from "./api.js";

/** @typedef {{change: (data: any) => void, gone: (data: any) => void, broken: () => void}} Follower */

// Several changes of what is shown (a step to another view) make one new stream.
const GATHERED_FOR_MS = 5;

/** @type {Map<string, Follower>} */
const followers = new Map();
/** @type {EventSource | null} */
let stream = null;
let gathering = 0;

function gather() {
  clearTimeout(gathering);
  gathering = setTimeout(open, GATHERED_FOR_MS);
}

/** Each view is sent as a whole by a new stream. */
function open() {
  stream?.close();
  stream = null;
  if (!followers.size) return;
  const queries = [...followers.keys()].sort().map((query) => ["of", query]);
  stream = new EventSource(`${basePath}/api/v2/events?${new URLSearchParams(queries)}`);
  stream.addEventListener("change", onEvent);
  stream.addEventListener("gone", onEvent);
  stream.addEventListener("bye", onBroken);
  stream.addEventListener("error", onBroken);
}

/** @param {MessageEvent} event */
function onEvent({ type, data }) {
  const { of, ...news } = JSON.parse(data);
  followers.get(of)?.[type](news);
}

/** Each view asks what is wrong, and follows again when it wants to. */
function onBroken() {
  stream?.close();
  stream = null;
  const lost = [...followers.values()];
  followers.clear();
  for (const follower of lost) follower.broken();
}

/**
 * Events of a view, from its whole state on.
 * @param {string} query of the view @param {Follower} follower @returns {() => void} what ends it
 */
export function follow(query, follower) {
  followers.set(query, follower);
  gather();
  return () => {
    if (followers.get(query) !== follower) return;
    followers.delete(query);
    gather();
  };
}
