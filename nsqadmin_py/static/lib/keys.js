// Keys of the page: one, or two after each other ("g t"). Those of the part that was drawn last come first.

import { useEffect, useRef } from "./html.js";

const PAIR_WITHIN_MS = 1500;
const FIELDS = "input, textarea, select, [contenteditable]";

/** @typedef {(() => void) | {run: () => void, text: string}} Key `text` says in the help what it does */

/** @type {{current: Record<string, Key>}[]} */
const layers = [];
let first = "";
let firstAt = 0;

/** @param {string} keys @returns {Key | undefined} */
function find(keys) {
  return layers.findLast((layer) => keys in layer.current)?.current[keys];
}

/** @param {KeyboardEvent} event */
function onKeyDown(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = event.target instanceof Element ? event.target : null;
  if (target?.closest(FIELDS) || document.querySelector("dialog[open]")) return;
  const pair = event.timeStamp - firstAt < PAIR_WITHIN_MS ? `${first} ${event.key}` : "";
  const key = (pair && find(pair)) || find(event.key);
  first = event.key;
  firstAt = event.timeStamp;
  if (!key) return;
  event.preventDefault();
  first = "";
  (typeof key === "function" ? key : key.run)();
}

document.addEventListener("keydown", onKeyDown);

/**
 * Keys that work while the part is drawn, and no one types in a field or has a dialog open.
 * @param {Record<string, Key>} keys such as `{"/": {text: "Search", run: focus}, "g t": go}`
 */
export function useKeys(keys) {
  const layer = useRef(keys);
  layer.current = keys;
  useEffect(() => {
    layers.push(layer);
    return () => {
      layers.splice(layers.indexOf(layer), 1);
    };
  }, []);
}

/** All keys that do something now, and what. @returns {{keys: string, text: string}[]} */
export function knownKeys() {
  const found = new Map();
  for (const layer of layers) {
    for (const [keys, key] of Object.entries(layer.current)) {
      if (typeof key !== "function") found.set(keys, key.text);
    }
  }
  return [...found].map(([keys, text]) => ({ keys, text }));
}
