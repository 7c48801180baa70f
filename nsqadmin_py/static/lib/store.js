// A value that several parts of the page read.

import { useEffect, useReducer } from "./html.js";

/** @template T */
export class Store {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    this.listeners = new Set();
  }

  /** @param {T} value */
  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const listener of [...this.listeners]) listener();
  }

  /** @param {() => void} listener @returns {() => void} what ends it */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/**
 * The value of a store; the part is drawn again when it changes.
 * @template T @param {Store<T>} store @returns {T}
 */
export function useStore(store) {
  const [, redraw] = useReducer((n) => n + 1, 0);
  useEffect(() => {
    redraw(); // it may have changed since it was drawn
    return store.listen(redraw);
  }, [store]);
  return store.value;
}
