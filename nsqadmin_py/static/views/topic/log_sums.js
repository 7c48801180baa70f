// Metrics of topics' logs. Pure; logs are the `nodes` of /topics/T/log, of which some may have no answer.

/**
 * @param {{answer?: object}[]} logs
 * @returns {{retained: number, needed: number, bytes: number, files: number, earliestNs: number | null}}
 */
export function sumsOf(logs) {
  const answers = logs.map((log) => log.answer).filter((answer) => answer?.files);
  const files = answers.flatMap((answer) => answer.files);
  const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);
  const earliest = answers.map(earliestOf).filter(Boolean);
  return {
    retained: sum(files, "message_count"),
    needed: sum(files, "live_count"),
    bytes: sum(answers, "bytes"),
    files: files.length,
    earliestNs: earliest.length ? Math.min(...earliest) : null,
  };
}

/** The oldest message that can be gone back to: what is older is not whole any more. */
function earliestOf(answer) {
  const file = answer.files.find((found) => found.first_seq >= answer.earliest_seq && found.first_timestamp);
  return file ? file.first_timestamp : null;
}

/**
 * From the oldest message of all logs to now.
 * @param {{answer?: object}[]} logs
 * @param {number} nowS
 * @returns {{fromNs: number, untilNs: number} | null}  null where there are no messages
 */
export function extentOf(logs, nowS) {
  const files = logs.flatMap((log) => log.answer?.files ?? []).filter((file) => file.first_timestamp);
  if (!files.length) return null;
  const fromNs = Math.min(...files.map((file) => file.first_timestamp));
  return { fromNs, untilNs: Math.max(nowS * 1e9, fromNs + 1e9, ...files.map(endOf)) };
}

function endOf(file) {
  return file.last_timestamp ?? file.first_timestamp;
}

/**
 * Where files are drawn: `x` and `width` in parts of the whole, `needed` the part of their messages that is needed.
 * @param {object[]} files
 * @param {{fromNs: number, untilNs: number}} extent
 * @param {number} leastWidth  so that a file of a moment is seen
 * @returns {{file: object, x: number, width: number, needed: number}[]}
 */
export function blocksOf(files, { fromNs, untilNs }, leastWidth) {
  const scale = 1 / (untilNs - fromNs);
  return files.filter((file) => file.first_timestamp && file.message_count).map((file) => {
    const width = Math.max((endOf(file) - file.first_timestamp) * scale, leastWidth);
    const x = Math.min((file.first_timestamp - fromNs) * scale, 1 - width);
    return { file, x, width, needed: file.live_count / file.message_count };
  });
}
