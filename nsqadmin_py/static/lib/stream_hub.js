// One stream of events for all tabs of a browser, which opens only six connections to a host over HTTP/1.1.
//
// A SharedWorker runs this module, and each tab is connected to it by a port. Tabs without such workers run it
// themselves. Messages of a tab: {path} once, then {add: query}, {drop: query} and {alive: true}. Messages to it: {of:
// query, name, data} for each event, and {of: query, name: "broken"}: nothing comes for the query until it is added again.

// Tabs that ended without a word are forgotten after this.
export const ALIVE_EVERY_MS = 10_000;
const FORGOTTEN_AFTER_MS = 35_000;
// Several changes of what is looked at (a step to another view) make one new stream.
const GATHERED_FOR_MS = 5;

/** @type {Map<MessagePort, {queries: Set<string>, at: number}>} */
const tabs = new Map();
let path = "";
/** @type {EventSource | null} */
let stream = null;
let opened = "";
let gathering = 0;

/** @param {MessagePort} port of a tab */
export function connect(port) {
  const tab = { queries: new Set(), at: performance.now() };
  port.onmessage = ({ data }) => {
    tab.at = performance.now();
    if (!tabs.has(port)) gather(); // a new one, or one that was forgotten while the computer slept
    tabs.set(port, tab);
    path = data.path ?? path;
    if (data.add) tab.queries.add(data.add);
    if (data.drop) tab.queries.delete(data.drop);
    // A view that is added is sent as a whole, also where another tab has it.
    if (data.add) opened = "";
    if (data.add || data.drop) gather();
  };
}

function gather() {
  clearTimeout(gathering);
  gathering = setTimeout(open, GATHERED_FOR_MS);
}

function wanted() {
  return [...new Set([...tabs.values()].flatMap((tab) => [...tab.queries]))].sort();
}

function open() {
  const queries = wanted().map((query) => ["of", query]);
  const address = queries.length ? `${path}?${new URLSearchParams(queries)}` : "";
  if (address === opened && (stream || !address)) return;
  stream?.close();
  opened = address;
  stream = address ? new EventSource(address) : null;
  stream?.addEventListener("change", tell);
  stream?.addEventListener("gone", tell);
  stream?.addEventListener("bye", onBroken);
  stream?.addEventListener("error", onBroken);
}

/** @param {MessageEvent} event */
function tell({ type, data }) {
  const { of, ...news } = JSON.parse(data);
  for (const [port, { queries }] of tabs) if (queries.has(of)) port.postMessage({ of, name: type, data: news });
}

/** Each tab asks what is wrong, and adds its queries again when it wants to. */
function onBroken() {
  stream?.close();
  stream = null;
  for (const [port, { queries }] of tabs) {
    const lost = [...queries];
    queries.clear();
    for (const of of lost) port.postMessage({ of, name: "broken" });
  }
}

setInterval(() => {
  const before = tabs.size;
  for (const [port, tab] of tabs) if (performance.now() - tab.at > FORGOTTEN_AFTER_MS) tabs.delete(port);
  if (tabs.size !== before) gather();
}, ALIVE_EVERY_MS);

// In a worker; in a page there is a window.
if (typeof window === "undefined") {
  addEventListener("connect", (event) => connect(/** @type {MessageEvent} */ (event).ports[0]));
}
