// Bodies of messages as people read them. Pure; whatever is in a body stays text.
//
// nsqds send what is UTF-8 as text, and the rest in base64.

import { plain } from "../../lib/format.js";

const STEP = "  ";
const LINE_BYTES = 16;
const OFFSET_DIGITS = 8;
// String.fromCharCode takes a limited number of arguments.
const CHUNK_BYTES = 8192;
// Strings, then marks, then numbers and words, as JSON has them.
const TOKENS = /"(?:[^"\\]|\\.)*"|[[\]{}:,]|[^\s[\]{}:,"]+/g;

/**
 * JSON with a line for each member; null where the text is none. Numbers stay as they are written: what does not
 * fit into a double is not rounded.
 * @param {string} text
 * @returns {string | null}
 */
export function indentJson(text) {
  if (!isDocument(text)) return null;
  const tokens = text.match(TOKENS);
  let depth = 0;
  let written = "";
  tokens.forEach((token, index) => {
    if (token === "{" || token === "[") {
      const isEmpty = tokens[index + 1] === (token === "{" ? "}" : "]");
      depth += 1;
      written += isEmpty ? token : token + newLine(depth);
    } else if (token === "}" || token === "]") {
      depth -= 1;
      const isEmpty = tokens[index - 1] === (token === "}" ? "{" : "[");
      written += isEmpty ? token : newLine(depth) + token;
    } else if (token === ",") {
      written += token + newLine(depth);
    } else {
      written += token === ":" ? ": " : token;
    }
  });
  return written;
}

function newLine(depth) {
  return `\n${STEP.repeat(depth)}`;
}

/** True for JSON with members: the rest is as well read as it is. */
function isDocument(text) {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * A text whose control characters can be seen and do nothing; lines and tabs stay.
 * @param {string} text
 * @returns {string}
 */
export function visible(text) {
  return text.split(/([\n\t])/).map((part, index) => (index % 2 ? part : plain(part))).join("");
}

/**
 * Offset, bytes and characters of 16 bytes a line.
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function hexDump(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += LINE_BYTES) {
    const part = [...bytes.subarray(start, start + LINE_BYTES)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const characters = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${start.toString(16).padStart(OFFSET_DIGITS, "0")}  ${hex.padEnd(LINE_BYTES * 3)} ${characters}`);
  }
  return lines.join("\n");
}

/**
 * @param {string} encoded  base64
 * @returns {Uint8Array | null}  null where it is none
 */
export function fromBase64(encoded) {
  try {
    return Uint8Array.from(atob(encoded), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
}

/**
 * @param {Uint8Array} bytes
 * @returns {string}
 */
export function toBase64(bytes) {
  let characters = "";
  for (let start = 0; start < bytes.length; start += CHUNK_BYTES) {
    characters += String.fromCharCode(...bytes.subarray(start, start + CHUNK_BYTES));
  }
  return btoa(characters);
}

/**
 * A message of /channel/peek: its bytes, and how it can be shown, the best way first.
 * @param {{body?: string, body_base64?: string}} message
 * @returns {{body: Uint8Array, forms: {name: string, text: () => string}[]}}
 */
export function formsOf(message) {
  const body = bytesOf(message);
  const hex = { name: "hex", text: () => hexDump(body) };
  if (typeof message.body !== "string") return { body, forms: [hex] };
  const text = { name: "text", text: () => message.body };
  if (!isDocument(message.body)) return { body, forms: [text, hex] };
  return { body, forms: [{ name: "JSON", text: () => indentJson(message.body) }, text, hex] };
}

function bytesOf({ body, body_base64: encoded }) {
  if (typeof body === "string") return new TextEncoder().encode(body);
  return fromBase64(encoded ?? "") ?? new Uint8Array();
}

const PREVIEWED_CHARACTERS = 300;

/**
 * A body in one line: its beginning, in which ends of lines and control characters can be seen, or its first bytes.
 * @param {{body?: string, body_base64?: string}} message
 */
export function preview(message) {
  if (typeof message.body === "string") return plain(message.body, PREVIEWED_CHARACTERS);
  return [...bytesOf(message).subarray(0, PREVIEWED_CHARACTERS / 3)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}
