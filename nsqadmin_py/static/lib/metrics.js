// The metrics by their keys in the API: the one name that tiles, charts and heads of tables give each, and what it means.

/** @type {Record<string, {title: string, help?: string, total?: string}>} `total`: the count of which it is the rate */
export const METRICS = {
  depth: { title: "Depth", help: "Messages that wait in memory or on disk; each channel has its own copy" },
  topic_depth: { title: "In the topic", help: "Messages that have not been copied to the channels yet" },
  backend_depth: { title: "On disk", help: "The part of the depth that is on disk; the rest is in memory" },
  in_flight: { title: "In flight", help: "Sent to consumers, and not finished yet" },
  deferred: { title: "Deferred", help: "To be delivered later" },
  messages: { title: "Messages total", help: "Since the nsqds started" },
  channel_messages: { title: "Processed", help: "Messages that channels got since the nsqds started" },
  requeued: { title: "Requeued total", help: "By consumers (REQ), since the nsqds started" },
  timed_out: { title: "Timed out total", help: "Not finished within the message timeout, since the nsqds started" },
  channels: { title: "Channels", help: "Each gets a copy of every message of the topic" },
  clients: { title: "Clients", help: "Consumers that are connected" },
  message_rate: { title: "In/s", help: "Messages that arrive, per second", total: "messages" },
  finish_rate: { title: "Finished/s", help: "By consumers (FIN), per second; a message counts once for each channel" },
  requeue_rate: { title: "Requeued/s", help: "By consumers (REQ), per second", total: "requeued" },
  timeout_rate: { title: "Timed out/s", help: "Not finished within the message timeout, per second", total: "timed_out" },
  oldest_age_s: {
    title: "Oldest", help: "How long the oldest waiting message has been waiting; Go’s nsqd does not report it",
  },
  drain_s: {
    title: "Drained in", help: "How long it takes until nothing waits, if messages come and are finished as in the last half minute",
  },
  lag_messages: { title: "Lag, messages", help: "Messages that a standby lacks" },
  lag_bytes: { title: "Lag, bytes", help: "Bytes that a standby lacks" },
  lag_s: { title: "Lag, time", help: "The age of the oldest change that a standby lacks" },
};

/** "99th", "99.9th": the name of a latency. @param {number} quantile @returns {string} */
export function percentile(quantile) {
  return `${Number((quantile * 100).toFixed(3))}th`;
}
