// Addresses of the page: which view they mean, and how one gets from one to the next.

import { basePath, enc, queryOf } from "./api.js";
import { useEffect } from "./html.js";
import { Store, useStore } from "./store.js";

const SCROLL_RESTS_MS = 150;

/** Where things are; each gives an href. */
export const paths = {
  topics: () => `${basePath}/`,
  channels: () => `${basePath}/channels`,
  topic: (/** @type {string} */ t) => `${basePath}/topics/${enc(t)}`,
  channel: (/** @type {string} */ t, /** @type {string} */ c) => `${basePath}/topics/${enc(t)}/${enc(c)}`,
  messages: (/** @type {string} */ t) => `${basePath}/topics/${enc(t)}?tab=messages`,
  log: (/** @type {string} */ t) => `${basePath}/topics/${enc(t)}?tab=log`,
  deadLetters: (/** @type {string} */ t) => `${basePath}/topics/${enc(t)}?tab=dead`,
  nodes: () => `${basePath}/nodes`,
  node: (/** @type {string} */ n) => `${basePath}/nodes/${enc(n)}`,
  lookup: () => `${basePath}/lookup`,
  counter: () => `${basePath}/counter`,
  audit: () => `${basePath}/audit`,
};

// Words of a path, `:x` for any, and the view that it is; by `tab` another one.
const ROUTES = [
  [[], "topics"],
  [["topics"], "topics"],
  [["topics", ":topic"], "topic", new Map([["messages", "messages"], ["log", "log"], ["dead", "dead_letters"]])],
  [["topics", ":topic", ":channel"], "channel"],
  [["channels"], "channels"],
  [["nodes"], "nodes"],
  [["nodes", ":node"], "node"],
  [["lookup"], "lookup"],
  [["counter"], "counter"],
  [["audit"], "audit"],
];

/** @param {string} word */
function decoded(word) {
  try {
    return decodeURIComponent(word).replaceAll("%2E", ".");
  } catch {
    return word;
  }
}

/** @param {string[]} words @param {string[]} pattern @returns {Record<string, string> | null} */
function match(words, pattern) {
  if (words.length !== pattern.length) return null;
  const params = {};
  for (const [i, part] of pattern.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = words[i];
    else if (part !== words[i]) return null;
  }
  return params;
}

/** @param {URL | Location} url */
function read(url) {
  const below = url.pathname.slice(basePath.length);
  const words = below.split("/").filter(Boolean).map(decoded);
  const query = Object.fromEntries(new URLSearchParams(url.search));
  for (const [pattern, name, tabs] of ROUTES) {
    const params = match(words, pattern);
    if (params) return { name: tabs?.get(query.tab) ?? name, params, query, path: below };
  }
  return { name: "nowhere", params: {}, query, path: below };
}

const here = new Store(read(location));

/** @returns {{name: string, params: Record<string, string>, query: Record<string, string>, path: string}} */
export function useRoute() {
  return useStore(here);
}

/** What `useRoute` gives, outside of a view. */
export function route() {
  return here.value;
}

/** @param {string} href @param {{replace?: boolean}} [options] */
export function navigate(href, { replace = false } = {}) {
  const url = new URL(href, location.href);
  if (url.href === location.href) return;
  clearTimeout(scrolled);
  if (replace) history.replaceState(history.state, "", url);
  else history.pushState(null, "", url);
  here.set(read(url));
}

/**
 * Changes words of the query and keeps the rest; those that are undefined, null or "" go. No separate step in the
 * history of the browser, unless `push`.
 * @param {Record<string, unknown>} words @param {{push?: boolean}} [options]
 */
export function setQuery(words, { push = false } = {}) {
  const query = { ...here.value.query, ...words };
  navigate(location.pathname + queryOf(query), { replace: !push });
}

/** How far down the page was when it was last shown; 0 where it is new. */
export function scrollHere() {
  return history.state?.scroll ?? 0;
}

let scrolled = 0;

/** Saved when scrolling rests: at a step back it is too late, and browsers limit how often the state may change. */
function onScroll() {
  clearTimeout(scrolled);
  scrolled = setTimeout(() => history.replaceState({ ...history.state, scroll: window.scrollY }, ""), SCROLL_RESTS_MS);
}

/** @param {MouseEvent} event */
function onClick(event) {
  const isSpecial = event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
  if (event.defaultPrevented || isSpecial) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || (link.target && link.target !== "_self") || link.download) return;
  const url = new URL(link.href, location.href);
  const isOurs = url.origin === location.origin && url.pathname.startsWith(`${basePath}/`);
  if (!isOurs || link.getAttribute("href").startsWith("#")) return;
  // Files and answers of the API are not views.
  if (read(url).name === "nowhere") return;
  event.preventDefault();
  navigate(url.href);
}

/** Begins to listen to clicks and to the back button; once. */
export function startRouting() {
  history.scrollRestoration = "manual";
  document.addEventListener("click", onClick);
  window.addEventListener("scroll", onScroll, { passive: true });
  window.addEventListener("popstate", () => {
    clearTimeout(scrolled);
    here.set(read(location));
  });
}

/** The title of the window. @param {string} text */
export function useTitle(text) {
  useEffect(() => {
    document.title = text ? `${text} · nsqadmin` : "nsqadmin";
  }, [text]);
}
