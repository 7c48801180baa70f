// A search through the logs of all nsqds of a topic: each is asked page after page, until there is enough or nothing left.

import { ApiError, at, explain, get } from "../../lib/api.js";

// As many as nsqadmin searches at a time.
const ASKED_AT_A_TIME = 4;
const MOST_IN_A_PAGE = 1000;

/**
 * What is known of one nsqd.
 * @typedef {object} Part
 * @property {string} node
 * @property {any[]} messages  found so far, in any order
 * @property {number | null} cursor  where its search goes on; null before its first page
 * @property {number} reachedNs  publish time of the last message that was searched; 0 where there is none
 * @property {number} searched  how many messages were
 * @property {number | null} left  how many are left; null where that is not known
 * @property {boolean} isOver
 * @property {string} error
 * @property {boolean} can  false of an nsqd that cannot show its log
 */

/** @param {string} node @returns {Part} */
export function begun(node) {
  return { node, messages: [], cursor: null, reachedNs: 0, searched: 0, left: null, isOver: false, error: "", can: true };
}

/**
 * A part with one more page: `answer` of the nsqd, or `error`; `log` is what the nsqd says about its log.
 * @param {Part} part @param {any} page @param {boolean} isBack @param {any} [log] @returns {Part}
 */
export function withPage(part, { answer, error = "", can = true }, isBack, log) {
  if (!answer) return { ...part, error, can, isOver: true };
  const cursor = isBack ? answer.prev_seq : answer.next_seq;
  const reachedNs = (isBack ? answer.first_timestamp : answer.last_timestamp) ?? part.reachedNs;
  const end = log && (isBack ? cursor - log.earliest_seq : log.next_seq - cursor);
  const isOver = isBack ? answer.is_start : answer.is_end;
  return {
    ...part, cursor, reachedNs, isOver, searched: part.searched + answer.searched_count,
    left: isOver ? 0 : log ? Math.max(0, end) : null,
    messages: [...part.messages, ...answer.messages.map((message) => ({ ...message, node: part.node }))],
  };
}

/** @param {Part[]} parts @param {boolean} isBack @returns {any[]} all messages in the order of the search */
function found(parts, isBack) {
  const sign = isBack ? -1 : 1;
  const compare = (a, b) => a.timestamp - b.timestamp || (a.node === b.node ? a.seq - b.seq : a.node < b.node ? -1 : 1);
  return parts.flatMap((part) => part.messages).sort((a, b) => sign * compare(a, b));
}

/**
 * The messages of all nsqds, the newest first: the last `requested` of a search backwards, or the first ones.
 * @param {Part[]} parts @param {number} requested @param {boolean} isBack
 */
export function shownOf(parts, requested, isBack) {
  const shown = found(parts, isBack).slice(0, requested);
  return isBack ? shown : shown.reverse();
}

/**
 * The parts that may still have one of the `requested` messages, those first that have been searched least.
 * @param {Part[]} parts @param {number} requested @param {boolean} isBack @returns {Part[]}
 */
export function unfinished(parts, requested, isBack) {
  const last = found(parts, isBack)[requested - 1]?.timestamp;
  const isBeyond = ({ reachedNs }) => last !== undefined && (isBack ? reachedNs <= last : reachedNs >= last);
  return parts.filter((part) => !part.isOver && !(part.reachedNs && isBeyond(part)))
    .sort((a, b) => a.searched - b.searched);
}

/**
 * How far a search is; `of` is null until all nsqds have said how much they have.
 * @param {Part[]} parts @returns {{searched: number, of: number | null}}
 */
export function progressOf(parts) {
  const searched = parts.reduce((sum, part) => sum + part.searched, 0);
  const isKnown = parts.every((part) => part.isOver || part.left !== null);
  return { searched, of: isKnown ? parts.reduce((sum, part) => sum + (part.left ?? 0), searched) : null };
}

/** One search; `onChange` gets what is known after each page. */
export class MessageSearch {
  /**
   * @param {string} topic
   * @param {{start: Record<string, string>, filters: Record<string, string>, isBack: boolean, requested: number}} asked
   * @param {string[]} nodes
   * @param {(known: {parts: Part[], requested: number, isBusy: boolean, message: string}) => void} onChange
   */
  constructor(topic, asked, nodes, onChange) {
    Object.assign(this, { topic, asked, onChange, requested: 0, message: "" });
    this.parts = nodes.map(begun);
    this.logs = new Map();
    this.abort = new AbortController();
  }

  /** Goes on until this number of messages is found. @param {number} requested */
  async run(requested) {
    this.requested = requested;
    this.message = "";
    const { signal } = this.abort = new AbortController();
    this.notify(true);
    const asked = new Set();
    const work = async () => {
      let part;
      while (!signal.aborted && (part = this.next(asked))) {
        const { node } = part;
        asked.add(node);
        await this.ask(part, signal);
        asked.delete(node);
      }
    };
    await Promise.all(Array.from({ length: ASKED_AT_A_TIME }, work));
    if (this.abort.signal === signal) this.notify(false);
  }

  /** Ends the search where it is; `run` goes on from there. */
  cancel() {
    this.abort.abort();
  }

  next(asked) {
    return unfinished(this.parts, this.requested, this.asked.isBack).find((part) => !asked.has(part.node));
  }

  async ask(part, signal) {
    const { start, filters, isBack } = this.asked;
    const next = part.cursor === null ? start : { [isBack ? "before" : "seq"]: part.cursor };
    const limit = Math.min(Math.max(1, this.requested - part.messages.length), MOST_IN_A_PAGE);
    try {
      if (part.cursor !== null && !this.logs.has(part.node)) await this.measure(part.node, signal);
      const words = { ...next, ...filters, node: part.node, limit };
      const { nodes: [page] } = await get(at("topics", this.topic, "messages"), words, { signal });
      if (signal.aborted) return;
      this.keep(withPage(part, page, isBack, this.logs.get(part.node)));
    } catch (error) {
      if (signal.aborted) return;
      // Wrong filters are the same mistake at all nsqds.
      const isRefused = error instanceof ApiError && error.status === 400;
      if (isRefused) this.message = explain(error);
      if (isRefused) this.cancel();
      this.keep(withPage(part, { error: explain(error) }, isBack));
    }
  }

  /** Learns how much the log of an nsqd has, for the progress. */
  async measure(node, signal) {
    const { nodes: [{ answer }] } = await get(at("topics", this.topic, "log"), { node }, { signal });
    this.logs.set(node, answer);
  }

  keep(part) {
    this.parts = this.parts.map((known) => (known.node === part.node ? part : known));
    this.notify(true);
  }

  notify(isBusy) {
    this.onChange({ parts: this.parts, requested: this.requested, isBusy, message: this.message });
  }
}
