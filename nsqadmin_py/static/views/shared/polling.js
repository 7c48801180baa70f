// What is not in a live view is asked for again and again, while the tab is visible.

import { explain } from "../../lib/api.js";
import { useCallback, useEffect, useRef, useState } from "../../lib/html.js";

/**
 * Calls `load` at once, every `everyMs`, and when the tab is visible again; not while it is hidden, and never
 * twice at a time. What it gave last stays while it fails, and until it answers for another `key`.
 * @param {string} key  of what is asked; a new one asks at once
 * @param {() => Promise<object>} load
 * @param {number} everyMs  0: once for each key
 * @returns {{data: object | null, key: string, message: string, isLoading: boolean, reload: () => void}}
 *   `key` is that of `data`
 */
export function usePolled(key, load, everyMs) {
  const [state, setState] = useState({ data: null, key: "", message: "", isLoading: true });
  const asking = useRef({});
  asking.current.load = load;
  const ask = useCallback(() => asking.current.again?.(), []);
  useEffect(() => {
    let isOver = false;
    let isBusy = false;
    async function again() {
      if (isBusy || isOver) return;
      isBusy = true;
      setState((known) => ({ ...known, isLoading: true }));
      const news = await settled(asking.current.load);
      isBusy = false;
      if (!isOver) setState((known) => ({ ...known, ...(news.data ? { ...news, key } : news), isLoading: false }));
    }
    const whenSeen = () => document.hidden || again();
    asking.current.again = again;
    again();
    document.addEventListener("visibilitychange", whenSeen);
    const timer = everyMs ? setInterval(whenSeen, everyMs) : 0;
    return () => {
      isOver = true;
      clearInterval(timer);
      document.removeEventListener("visibilitychange", whenSeen);
    };
  }, [key, everyMs]);
  return { ...state, reload: ask };
}

async function settled(load) {
  try {
    return { data: await load(), message: "" };
  } catch (error) {
    return { message: explain(error) };
  }
}
