// What a seek would do. Pure.
//
// Everything from the sought message on is queued, everything before is finished. How much that is, is estimated from
// the files of the logs: within a file, messages are taken to have come evenly.

import { counted, held, messagesOf } from "../shared/lost_messages.js";

const ALWAYS = { earliest: -Infinity, latest: Infinity };

/**
 * Messages that a log retains from a time on.
 * @param {{files: object[]}} log
 * @param {number} fromNs
 * @returns {number}
 */
export function retainedFrom(log, fromNs) {
  if (fromNs === -Infinity) return messagesOf(log);
  return Math.round(log.files.reduce((sum, file) => sum + file.message_count * partFrom(file, fromNs), 0));
}

function partFrom({ first_timestamp: first, last_timestamp: last }, fromNs) {
  if (first === null || fromNs <= first) return fromNs === Infinity ? 0 : 1;
  if (last === null || fromNs > last) return 0;
  return (last - fromNs) / (last - first);
}

/**
 * @param {object[]} logs  `nodes` of /topics/T/log
 * @param {object[]} parts  the channel's rows, one of each nsqd
 * @param {string | number} target  "earliest", "latest", or ms since the epoch
 * @returns {{again: number, skipped: number, unable: {node: string, error: string}[]}}
 */
export function effectOf(logs, parts, target) {
  const fromNs = ALWAYS[target] ?? target * 1e6;
  const effect = { again: 0, skipped: 0, unable: [] };
  for (const { node, answer, error } of logs) {
    const part = parts.find((row) => row.node === node);
    if (!answer) effect.unable.push({ node, error });
    else if (part) {
      const change = retainedFrom(answer, fromNs) - held(part);
      effect[change > 0 ? "again" : "skipped"] += Math.abs(change);
    }
  }
  return effect;
}

/**
 * What is delivered again, in a sentence.
 * @param {{again: number, skipped: number}} effect
 * @returns {string}
 */
export function effectText({ again, skipped }) {
  if (!again && !skipped) return "By these metrics, nothing changes.";
  const parts = [
    ...(again ? [`about ${counted(again, "message")} ${again === 1 ? "is" : "are"} delivered again`] : []),
    ...(skipped ? [skippedText(skipped)] : []),
  ];
  const text = `${parts.join(", and ")}.`;
  return text[0].toUpperCase() + text.slice(1);
}

/**
 * @param {number} skipped
 * @returns {string}
 */
export function skippedText(skipped) {
  const [wait, are] = skipped === 1 ? ["waits", "is"] : ["wait", "are"];
  return `about ${counted(skipped, "message")} that ${wait} ${are} skipped: never delivered here`;
}
