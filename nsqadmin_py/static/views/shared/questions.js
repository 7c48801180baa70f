// What is asked before an action: what will be lost, with the metrics of that moment.
//
// Each gives the options of confirm(). Nothing that holds messages or channels goes without its name being typed.

import { at, explain, get, session } from "../../lib/api.js";
import { bytes, clock } from "../../lib/format.js";
import { counted, ofChannel, ofEmptied, ofPart, ofTopic, ofTopicItself, unknown } from "./lost_messages.js";

/** @returns {Promise<object>} options of confirm() */
export async function deleteTopic(topic) {
  const [metrics, log] = await Promise.all([asked(at("topics", topic)), asked(at("topics", topic, "log"))]);
  return question(metrics, {
    title: `Delete the topic ${topic}?`,
    text: "All nsqds and nsqlookupds delete it, with all its channels and files. A publisher that continues " +
      "creates it again, empty.",
    loses: (found, overview) => [...ofTopic(found, log.answer), ...unknown(found.rows, overview)],
    button: "Delete topic",
    name: topic,
  });
}

/** @returns {Promise<object>} options of confirm() */
export async function emptyTopic(topic) {
  const metrics = await asked(at("topics", topic));
  return question(metrics, {
    title: `Empty the topic ${topic}?`,
    text: "This drops the messages in the topic itself, which no channel has received yet. Those in its " +
      "channels stay: empty each channel separately.",
    loses: (found, overview) => [...ofTopicItself(found), ...unknown(found.rows, overview)],
    button: "Empty topic",
    name: topic,
  });
}

/** @returns {Promise<object>} options of confirm() */
export async function deleteChannel(topic, channel) {
  const metrics = await asked(at("topics", topic, "channels", channel));
  return question(metrics, {
    title: `Delete the channel ${channel}?`,
    text: `All nsqds that have the topic ${topic} delete it and disconnect its consumers. A consumer that reconnects ` +
      "creates it again, empty.",
    loses: (found, overview) => [...ofChannel(found), ...unknown(found.rows, overview)],
    button: "Delete channel",
    name: channel,
  });
}

/** @returns {Promise<object>} options of confirm() */
export async function emptyChannel(topic, channel) {
  const metrics = await asked(at("topics", topic, "channels", channel));
  return question(metrics, {
    title: `Empty the channel ${channel}?`,
    text: `This drops all its messages of the topic ${topic}: waiting, deferred and in flight. ` +
      "Other channels keep theirs.",
    loses: (found, overview) => [...ofEmptied(found), ...unknown(found.rows, overview)],
    button: "Empty channel",
    name: channel,
  });
}

/** @returns {Promise<object>} options of confirm() */
export async function pauseTopic(topic) {
  const { answer } = await asked(at("topics", topic));
  const channels = answer?.channels
    ? ` Its ${counted(answer.channels, "channel")} deliver the messages that they have, and get no new ones.` : "";
  return {
    title: `Pause the topic ${topic}?`,
    text: `Nothing is lost. New messages wait in the topic until it is resumed.${channels}`,
    loses: [],
    button: "Pause topic",
    danger: false,
  };
}

/** @returns {Promise<object>} options of confirm() */
export async function pauseChannel(topic, channel) {
  const { answer } = await asked(at("topics", topic, "channels", channel));
  const effect = answer?.clients ? `none of its ${counted(answer.clients, "consumer")} gets any` : "none is delivered";
  const inFlight = answer?.in_flight ? ` ${counted(answer.in_flight, "message")} in flight can still be finished.` : "";
  return {
    title: `Pause the channel ${channel}?`,
    text: `Nothing is lost. New messages wait in the channel; ${effect} until it is resumed.${inFlight}`,
    loses: [],
    button: "Pause channel",
    danger: false,
  };
}

/**
 * Takes a topic from one nsqd.
 * @returns {Promise<object>} options of confirm()
 */
export async function tombstone(topic, node) {
  const metrics = await asked(at("nodes", node));
  const row = metrics.answer?.rows.find((found) => found.topic === topic);
  const hidden = session().lookupds > 0
    ? "nsqlookupds hide this nsqd from consumers of the topic for a while, and the topic is deleted there."
    : "The topic is deleted there.";
  return question(metrics, {
    title: `Tombstone ${topic} on ${node}?`,
    text: `${hidden} A publisher that continues there creates it again.`,
    loses: (found) => [...(row ? ofPart(row) : []), ...unknown([found])],
    button: "Tombstone",
    name: topic,
  });
}

/**
 * Makes a standby the primary: what it lacks is lost.
 * @returns {Promise<object>} options of confirm()
 */
export async function promote(node) {
  const { rows: _, ...head } = await get(at("nodes", node));
  const { standby } = head;
  if (!standby) throw new Error(`${node} is not a standby any more.`);
  const loses = ofPromotion(standby, head.time);
  const asOf = loses.length ? `These are the metrics of ${clock(head.time)}; they may have grown since.`
    : `Nothing is lost, by the metrics of ${clock(head.time)}.`;
  return {
    title: `Promote ${node}?`,
    text: "It becomes the primary with what it has, begins a new epoch, and registers with nsqlookupd; that takes as " +
      `long as a start. ${asOf}`,
    warning: standby.primary_answers
      ? `Its primary ${standby.primary} still answers. Both would take publishes and deliver: each then has its own ` +
        "messages, and nothing merges them. Stop it first."
      : `nsqadmin gets no answer from its primary ${standby.primary}. Make sure that no client reaches it: nothing ` +
        "merges the messages of two primaries.",
    loses,
    button: "Promote",
    phrase: node,
  };
}

/** What a standby lacks, as it was when it last heard from its primary. */
function ofPromotion({ lag_messages: lag, lag_bytes: size, as_of_s: asOfS, primary, state }, timeS) {
  const lacks = `${counted(lag, "message")} (${bytes(size)}) of ${primary} that it has not got`;
  if (state === "following" || asOfS === null) return lag || size ? [lacks] : [];
  const last = clock(timeS - asOfS);
  return [
    ...(lag || size ? [`${lacks}, as of ${last}`] : []),
    `an unknown number: what ${primary} acknowledged after ${last}, when it last heard from it, unless publishers ` +
      "wait for a standby (--standby-acks)",
  ];
}

/** An answer, or why there is none. */
async function asked(path) {
  try {
    return { answer: await get(path) };
  } catch (error) {
    return { status: error.status, failure: explain(error) };
  }
}

/** What is lost by the metrics of `asked`; with the name to be typed where that is anything, or no one knows. */
async function question({ answer, failure, status }, { title, text, loses, button, name }) {
  if (!answer && status === 404) return { title, text: `${text} No nsqd has it now.`, loses: [], button };
  if (!answer) return { title, text, loses: [`an unknown number of messages: ${failure}`], button, phrase: name };
  const overview = await asked("/overview");
  const lost = loses(answer, overview.answer);
  const asOf = lost.length
    ? `These are the metrics of ${clock(answer.time)}; they may have grown since.`
    : `Nothing is lost, by the metrics of ${clock(answer.time)}.`;
  return { title, text: `${text} ${asOf}`, loses: lost, button, ...(lost.length ? { phrase: name } : {}) };
}
