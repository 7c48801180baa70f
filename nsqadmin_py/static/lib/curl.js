// Actions as commands for a shell. They contain no secret: the token is asked for, and curl asks for a password.

import { href, session } from "./api.js";

const FIND_TOKEN = `sed 's/.*"token":"\\([^"]*\\)".*/\\1/'`;

/** A word of a shell's command. @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * The commands that do what a button does.
 * @param {...Record<string, any>} orders bodies of POST /api/v2/actions @returns {string}
 */
export function curlOf(...orders) {
  const url = (path) => quoted(location.origin + href(path));
  const { login, user } = session();
  const curl = `curl -fsS${login ? ` -u ${quoted(user)}` : ""}`;
  const token = `token=$(${curl} ${url("/session")} | ${FIND_TOKEN})`;
  const post = `${curl} -H 'Content-Type: application/json' -H "X-Nsqadmin-Token: $token" ${url("/actions")}`;
  return [token, ...orders.map((order) => `${post} --data-raw ${quoted(JSON.stringify(order))}`)].join("\n");
}
