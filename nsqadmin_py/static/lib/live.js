// Metrics as they change. What is shown comes over one stream of events. The
// overview, which the header shows over every view, is asked for again and again instead: so a page notices a connection
// that is dead but not closed.

import { ApiError, at, explain, get, loadSession, queryOf, session } from "./api.js";
import { useEffect, useMemo, useRef } from "./html.js";
import { Store, useStore } from "./store.js";
import { follow } from "./streams.js";

const HIDDEN_FOR_MS = 5000;
const RETRY_MS = [1000, 2000, 4000, 8000, 15_000];
const OVERVIEW_AT_MOST_EVERY_MS = 1000;
const OVERVIEW_TIMEOUT_MS = 10_000;
// A stream that lasted so long was ended by a proxy in between, as many do, and not for what it said.
const LASTING_MS = 5000;

/**
 * @typedef {object} Live
 * @property {Record<string, any>} head the metrics of the thing itself
 * @property {Record<string, any>[]} rows in the order of the server; a row that did not change is the same object
 * @property {number} time of the metrics, in s; 0 before the first
 * @property {"connecting" | "live" | "lost" | "gone"} state
 * @property {string} message why it is lost or gone
 */

/** @type {Live} */
const NOTHING = Object.freeze({ head: {}, rows: [], time: 0, state: "connecting", message: "" });

/** The path that answers once what a stream sends all the time. @param {Record<string, any>} words */
function pathOf({ view, topic, channel, node }) {
  if (view === "topic") return at("topics", topic);
  if (view === "channel") return at("topics", topic, "channels", channel);
  return view === "node" ? at("nodes", node) : `/${view}`;
}

/** Waits a little longer each time; not all pages at the same moment. @param {number} tries */
function pause(tries) {
  return RETRY_MS[Math.min(tries, RETRY_MS.length - 1)] * (0.75 + Math.random() / 2);
}

/** What is shown, while the page is visible. */
class Source {
  constructor() {
    /** @type {Store<Live>} */
    this.store = new Store(NOTHING);
    this.readers = 0;
    this.tries = 0;
    this.timer = 0;
  }

  join() {
    this.readers += 1;
    if (this.readers === 1 && !isAsleep) this.open();
  }

  leave() {
    this.readers -= 1;
    if (this.readers === 0) this.close();
  }

  /** @param {Partial<Live>} news */
  notify(news) {
    this.store.set({ ...this.store.value, ...news });
    compareConnections();
  }

  open() {}

  close() {
    clearTimeout(this.timer);
  }

  reopen() {
    this.close();
    this.tries = 0;
    if (this.readers) this.open();
  }

  retry() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), pause(this.tries));
    this.tries += 1;
  }
}

/** A view over a stream of events. */
class Feed extends Source {
  /** @param {Record<string, any>} words of the query */
  constructor(words) {
    super();
    this.words = words;
    this.asOf = 0;
    this.openedAt = 0;
    /** @type {(() => void) | null} */
    this.unfollow = null;
    /** @type {string[]} */
    this.keys = [];
    this.byKey = new Map();
  }

  join() {
    feeds.set(queryOf(this.words), this); // it may have been left, and taken out, just before
    super.join();
  }

  leave() {
    super.leave();
    if (this.readers === 0) feeds.delete(queryOf(this.words));
    compareConnections();
  }

  open() {
    this.close();
    this.openedAt = performance.now();
    this.unfollow = follow(queryOf(this.words).slice(1), {
      change: (event) => this.onChange(event),
      gone: (event) => this.onGone(event.message),
      broken: () => this.onBroken(),
    });
  }

  close() {
    super.close();
    this.unfollow?.();
    this.unfollow = null;
  }

  /** @param {any} event */
  onChange(event) {
    this.tries = 0;
    if (event.full) this.byKey.clear();
    for (const [key, row] of Object.entries(event.rows ?? {})) this.byKey.set(key, row);
    if (event.keys) {
      const stay = new Set(event.keys);
      this.keys = event.keys;
      for (const key of [...this.byKey.keys()]) if (!stay.has(key)) this.byKey.delete(key);
    }
    const news = { time: event.time, state: "live", message: "" };
    if (event.head) news.head = event.head;
    if (event.rows || event.keys) news.rows = this.keys.map((key) => this.byKey.get(key));
    this.notify(news);
  }

  /** @param {string} message */
  onGone(message) {
    this.byKey.clear();
    this.keys = [];
    this.notify({ head: {}, rows: [], state: "gone", message: explain(new ApiError(404, message)) });
  }

  async onBroken() {
    this.close();
    const hasLasted = performance.now() - this.openedAt > LASTING_MS;
    const error = await this.whatIsWrong();
    if (!this.readers || this.unfollow || isAsleep) return; // it was closed or opened in the meantime
    if (!error && hasLasted) {
      this.open();
      return;
    }
    if (error?.status === 404) this.onGone(error.message);
    else this.notify({ state: "lost", message: error ? explain(error) : "The stream of metrics does not stay open." });
    this.retry();
  }

  /** A stream does not say why it ends; the same question without a stream does. */
  async whatIsWrong() {
    try {
      await get(pathOf(this.words), this.words, { timeout_ms: OVERVIEW_TIMEOUT_MS });
      return null;
    } catch (error) {
      return error instanceof ApiError ? error : new ApiError(0, String(error));
    }
  }
}

/** The overview, asked for in the pace of nsqadmin's rounds. */
class Overview extends Source {
  constructor() {
    super();
    this.turn = 0;
  }

  async open() {
    clearTimeout(this.timer);
    const turn = (this.turn += 1);
    const wasLost = this.store.value.state === "lost";
    try {
      const { time, tick, rows, ...head } = await get("/overview", {}, { timeout_ms: OVERVIEW_TIMEOUT_MS });
      if (turn !== this.turn) return;
      this.tries = 0;
      this.notify({ head, time, state: "live", message: "" });
      if (wasLost) afterLoss();
      const wait = Math.max(session().poll_interval_s * 1000, OVERVIEW_AT_MOST_EVERY_MS);
      this.timer = setTimeout(() => this.open(), wait);
    } catch (error) {
      if (turn !== this.turn) return;
      this.notify({ state: "lost", message: explain(error) });
      this.retry();
    }
  }

  close() {
    super.close();
    this.turn += 1; // what is under way comes too late
  }
}

/** @type {Map<string, Feed>} */
const feeds = new Map();
const overview = new Overview();
let isAsleep = document.hidden; // a tab that was opened in the background

/** nsqadmin may be another one, with other rights; and a stream may be dead and not know it. */
function afterLoss() {
  for (const feed of feeds.values()) feed.reopen();
  loadSession().catch(() => {}); // an action will ask for it again
}

/** @param {string} view @param {Record<string, any>} words */
function sourceOf(view, words) {
  if (view === "overview") return overview;
  const query = { view, ...words };
  const key = queryOf(query);
  const feed = feeds.get(key) ?? new Feed(query);
  feeds.set(key, feed);
  return feed;
}

/**
 * What a view shows, as it changes. With other words (search, order, page) it shows what it had until the answer comes.
 * @param {"overview" | "topics" | "topic" | "channel" | "nodes" | "node"} view
 * @param {Record<string, any>} [words] as in the queries of the API
 * @returns {Live}
 */
export function useLive(view, words = {}) {
  const source = useMemo(() => sourceOf(view, words), [queryOf({ view, ...words })]);
  useEffect(() => {
    source.join();
    return () => source.leave();
  }, [source]);
  const live = useStore(source.store);
  const names = queryOf({ view, topic: words.topic, channel: words.channel, node: words.node });
  const shown = useRef({ names: "", live: NOTHING });
  const isWaiting = live.time === 0 && live.state === "connecting";
  if (!isWaiting || shown.current.names !== names) shown.current = { names, live };
  return shown.current.live;
}

// ---- whether there is a connection at all

/** @type {Store<{state: string, time: number, message: string}>} */
const connection = new Store({ state: "connecting", time: 0, message: "" });

/** Of the stream, or of the overview where a view has none. */
function compareConnections() {
  const polled = overview.store.value;
  const feed = [...feeds.values()].find((one) => one.readers > 0);
  const shown = feed ? feed.store.value : polled;
  if (feed && shown.state === "live" && polled.state === "live") feed.asOf = polled.time;
  const isLost = shown.state === "lost" || polled.state === "lost";
  // A stream is opened at each step to another view, and a topic that is gone is no matter of the connection.
  const state = isLost ? "lost" : shown.state === "live" ? "live" : polled.state;
  const time = Math.max(shown.time, feed ? feed.asOf : 0) || polled.time;
  const message = isLost ? shown.message || polled.message : "";
  const before = connection.value;
  if (state !== before.state || time !== before.time || message !== before.message) {
    connection.set({ state, time, message });
  }
}

/** For the badge in the header. */
export function useConnection() {
  return useStore(connection);
}

// ---- pages that no one sees

function sleep() {
  isAsleep = true;
  for (const source of [overview, ...feeds.values()]) {
    source.close();
    if (source.store.value.state === "live") source.notify({ state: "connecting" });
  }
}

function wake() {
  if (!isAsleep || document.hidden) return;
  isAsleep = false;
  for (const source of [overview, ...feeds.values()]) source.reopen();
}

let hiding = 0;

/** Begins to let go of the stream while the page is hidden; once. */
export function startWatching() {
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(sleep, HIDDEN_FOR_MS);
    else wake();
  });
  window.addEventListener("pagehide", sleep);
  window.addEventListener("pageshow", wake);
  window.addEventListener("online", () => {
    for (const source of [overview, ...feeds.values()]) if (source.store.value.state === "lost") source.reopen();
  });
}
