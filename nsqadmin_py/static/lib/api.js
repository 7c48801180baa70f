// Requests to nsqadmin. All paths are below its base path.

const TOKEN_HEADER = "X-Nsqadmin-Token";
const TIMEOUT_MS = 30_000;
const RELOADED_AT = "nsqadmin.reloaded-at";
const RELOAD_AT_MOST_EVERY_MS = 30_000;

/** @param {string} name */
function meta(name) {
  return document.querySelector(`meta[name="nsqadmin-${name}"]`)?.getAttribute("content") ?? "";
}

export const basePath = meta("base-path").replace(/\/+$/, "");

let known = JSON.parse(meta("session"));

/** An answer that is none: `status` is 0 where nsqadmin cannot be reached. */
export class ApiError extends Error {
  /** @param {number} status @param {string} message @param {object} [more] what else the answer says */
  constructor(status, message, more = {}) {
    super(message);
    this.status = status;
    this.more = more;
  }
}

const NAME_RULE = "1 to 64 letters, digits, dots, _ and -, and perhaps #ephemeral at the end.";

// A map, since a message may be any word.
const SENTENCES = new Map(Object.entries({
  TOPIC_NOT_FOUND: "The topic does not exist.",
  CHANNEL_NOT_FOUND: "The channel does not exist.",
  NODE_NOT_FOUND: "The nsqd is not known.",
  NOT_FOUND: "Nothing was found at this address.",
  INVALID_TOPIC: `Not a valid topic name: ${NAME_RULE}`,
  INVALID_CHANNEL: `Not a valid channel name: ${NAME_RULE}`,
  INVALID_TOKEN: "This page is out of date. Reload it.",
  READ_ONLY: "This nsqadmin is read-only.",
  FORBIDDEN: "You are not allowed to change anything here.",
  FORBIDDEN_TOPIC: "You are not allowed to do this with this topic.",
  UNAUTHORIZED: "Log in first.",
  TOO_MANY_LOGINS: "Too many failed logins. Wait a minute.",
  TOO_MANY_READERS: "Too many pages are open at this nsqadmin.",
  CROSS_SITE_REQUEST: "Refused: the browser reports that another site sent this request.",
  BODY_TOO_BIG: "The request is too large.",
  BODY_TOO_SLOW: "The request took too long to arrive.",
  MISSING_ARG_BODY: "A message needs a body.",
  MISSING_ARG_CHANNEL: "The topic has several channels: choose one.",
  INVALID_ARG_BODY_BASE64: "The body is not base64.",
  INVALID_ARG_TARGET: "Choose another topic than the one that has the messages.",
  STANDBY_INCOMPLETE: "Its copy is not complete: it cannot be promoted yet.",
  LEASE_DECIDES: "A lease decides which nsqd is the primary. To move it, stop the primary.",
  NOT_A_STANDBY: "It is not a standby.",
  MESSAGE_NOT_QUEUED: "The message does not wait in this channel any more: a consumer has it, or it was finished.",
  MESSAGE_NOT_FOUND: "The message is not there any more.",
  INVALID_ARG_TEXT: "The text cannot be used",
  INVALID_ARG_REGEX: "The regular expression cannot be used",
  INVALID_ARG_PATH: "The JSON path cannot be used",
  INTERNAL_ERROR: "Internal error of nsqadmin; see its log.",
}));

/** A sentence for people. @param {unknown} error @returns {string} */
export function explain(error) {
  if (!(error instanceof ApiError)) return String(error instanceof Error ? error.message : error);
  if (error.status === 0) return "nsqadmin cannot be reached.";
  const text = error.message.replace(/^(UPSTREAM|INTERNAL)_ERROR: /, "");
  const { reason } = error.more;
  if (reason) return `${SENTENCES.get(text) ?? text}: ${reason}.`;
  return SENTENCES.get(text) ?? (text || `nsqadmin answered with status ${error.status}.`);
}

/** A name as a part of a path. Browsers resolve `.` and `..`, also if escaped once. @param {string} name */
export function enc(name) {
  return name === "." || name === ".." ? name.replaceAll(".", "%252E") : encodeURIComponent(name);
}

/** A path of encoded names: `at("topics", t, "channels", c)`. @param {...string} names @returns {string} */
export function at(...names) {
  return names.map((name) => `/${enc(name)}`).join("");
}

/** @param {Record<string, unknown>} params those that are undefined, null or "" are left out; lists are repeated */
export function queryOf(params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") query.append(name, String(one));
    }
  }
  const text = query.toString();
  return text && `?${text}`;
}

/** The address of what is below /api/v2. @param {string} path @param {Record<string, unknown>} [params] */
export function href(path, params = {}) {
  return `${basePath}/api/v2${path}${queryOf(params)}`;
}

/** A body that is no JSON. @param {string} path @param {Record<string, unknown>} params @returns {Promise<Uint8Array>} */
export async function load(path, params) {
  const response = await fetch(href(path, params), { credentials: "same-origin", cache: "no-store" });
  if (!response.ok) await read(response);
  return new Uint8Array(await response.arrayBuffer());
}

/** @param {string} path below the base path @param {RequestInit & {timeout_ms?: number}} options */
async function request(path, { timeout_ms = TIMEOUT_MS, signal, ...options } = {}) {
  const late = AbortSignal.timeout(timeout_ms);
  let response;
  try {
    response = await fetch(basePath + path, {
      credentials: "same-origin", cache: "no-store", redirect: "manual",
      signal: signal ? AbortSignal.any([signal, late]) : late, ...options,
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "UNREACHABLE");
  }
  // nsqadmin never sends us elsewhere: that is a proxy, to its page for logins.
  if (response.status === 401 || response.type === "opaqueredirect") logIn();
  return read(response);
}

/** @param {Response} response */
async function read(response) {
  let body = {};
  try {
    const text = await response.text();
    body = text ? JSON.parse(text) : {};
  } catch {
    if (response.ok) throw new ApiError(0, "CUT_OFF");
  }
  if (!response.ok) throw new ApiError(response.status, String(body?.message ?? response.statusText), body);
  return body;
}

/** The browser asks for a login when it loads the page again; not again and again where that does not help. */
function logIn() {
  const last = Number(sessionStorage.getItem(RELOADED_AT) ?? 0);
  if (Date.now() - last < RELOAD_AT_MOST_EVERY_MS) return;
  sessionStorage.setItem(RELOADED_AT, String(Date.now()));
  location.reload();
}

/**
 * What is below /api/v2.
 * @param {string} path such as "/topics"; names in it are encoded, see `at`
 * @param {Record<string, unknown>} [params] @param {{signal?: AbortSignal, timeout_ms?: number}} [options]
 * @returns {Promise<any>}
 */
export function get(path, params = {}, options = {}) {
  return request(`/api/v2${path}${queryOf(params)}`, options);
}

/**
 * Does something: `{action, topic, channel?, node?, ...}`, see docs/nsqadmin.md.
 * @param {object} order @returns {Promise<{errors: string[]}>}
 */
export async function act(order) {
  try {
    return await post(order);
  } catch (error) {
    if (!(error instanceof ApiError) || error.message !== "INVALID_TOKEN") throw error;
    await loadSession(); // nsqadmin has been started again
    return post(order);
  }
}

/** @param {object} order */
function post(order) {
  const headers = { "Content-Type": "application/json", [TOKEN_HEADER]: known.token };
  return request("/api/v2/actions", { method: "POST", headers, body: JSON.stringify(order) });
}

/**
 * The few things that only Go's paths have.
 * @param {string} method @param {string} path "/api/…" @param {object} [body] @returns {Promise<any>}
 */
export function goApi(method, path, body) {
  const options = body === undefined ? { method } :
    { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  return request(path, options);
}

/** Asks again who uses the page, where nsqadmin has been started again; the page itself comes with it. */
export async function loadSession() {
  known = { ...known, ...(await get("/session")) };
  return known;
}

/**
 * Who uses the page, and what they may do.
 * @returns {{user: string, may_act: boolean, permissions: [permission: string, pattern: string][] | null,
 *   read_only: boolean, token: string, version: string, project_version: string,
 *   poll_interval_s: number, lookupds: number}}
 */
export function session() {
  return known;
}

// What concerns all users: it needs an administrator of everything.
const WITHOUT_TOPIC = ["dismiss", "promote"];
const PERMISSIONS = ["view", "publish", "administer"];

/**
 * Why a button does nothing; empty if it works.
 * @param {{action?: string, topic?: string}} [order] if it is known: a user may have permissions on some topics only
 * @returns {string}
 */
export function whyNot({ action = "", topic = "" } = {}) {
  if (!known.may_act) return SENTENCES.get(known.read_only ? "READ_ONLY" : "FORBIDDEN");
  if (!known.permissions || !action) return "";
  if (WITHOUT_TOPIC.includes(action)) return SENTENCES.get("FORBIDDEN");
  const least = PERMISSIONS.indexOf(action === "publish" ? "publish" : "administer");
  const isGranted = known.permissions.some(([permission, pattern]) =>
    PERMISSIONS.indexOf(permission) >= least && matches(pattern, topic));
  return isGranted ? "" : SENTENCES.get("FORBIDDEN_TOPIC");
}

/** True if a topic matches a pattern with * and ?. @param {string} pattern @param {string} topic */
export function matches(pattern, topic) {
  const escaped = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${escaped.replaceAll("*", ".*").replaceAll("?", ".")}$`).test(topic);
}
