// Dead letters as nsqds remember them. Pure; `nodes` are those of /topics/T/dead-letters.

const DEAD = ".dead";

/**
 * @param {{nodes: {node: string, dead_letters: object[]}[]} | null} answer
 * @returns {object[]}  {key, node, seq, id, attempts, topic, channel, timestamp, died}, both times in ns; without a number
 *   from an nsqd that shows no log, and null where the nsqd does not remember the origin
 */
export function deadLettersOf(answer) {
  return (answer?.nodes ?? []).flatMap(({ node, dead_letters: deadLetters }) =>
    // A message may die twice: from two channels, or after it was requeued.
    deadLetters.map((deadLetter) => ({ ...deadLetter, node, key: `${node} ${deadLetter.seq} ${deadLetter.id} ${deadLetter.channel} ${deadLetter.died}` })));
}

/**
 * Nsqds that did not answer.
 * @param {{node: string, error?: string}[]} nodes
 * @returns {{node: string, error: string}[]}
 */
export function failuresOf(nodes) {
  return nodes.filter((node) => node.error);
}

/**
 * Topics that dead letters come from; those that most come from are first.
 * @param {{topic: string}[]} deadLetters
 * @returns {string[]}
 */
export function originsOf(deadLetters) {
  const counts = new Map();
  for (const { topic } of deadLetters) if (topic) counts.set(topic, (counts.get(topic) ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]).map(([topic]) => topic);
}

/**
 * Where dead letters are put back, unless the user says otherwise.
 * @param {string} topic  that has them
 * @param {string[]} origins
 * @returns {string}  empty where no one knows
 */
export function usualTarget(topic, origins) {
  if (origins.length) return origins[0];
  return topic.endsWith(DEAD) ? topic.slice(0, -DEAD.length) : "";
}

/**
 * @param {object[]} rows  of the view of a topic
 * @returns {{channel: string, depth: number}[]}
 */
export function channelsOf(rows) {
  return rows.filter((row) => row.channel);
}

/**
 * How many messages a requeue would find: what waits in the channel, and what the channel would get first.
 * @param {{topic_depth: number}} head
 * @param {{channel: string, depth: number}[]} channels
 * @param {string} channel
 * @returns {number}
 */
export function waitingIn(head, channels, channel) {
  return head.topic_depth + (channels.find((row) => row.channel === channel)?.depth ?? 0);
}
