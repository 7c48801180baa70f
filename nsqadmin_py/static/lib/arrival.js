// What happens when another view is there: its heading gets the focus, and the page is where it was left.

import { useLayoutEffect, useRef } from "./html.js";
import { scrollHere } from "./route.js";

// Views come in parts: the heading when their module is loaded, lists when nsqadmin has answered.
const WITHIN_MS = 4000;
const OWN_WAY = ["wheel", "touchstart", "pointerdown", "keydown"];

/** @param {HTMLElement} main @returns {() => void} what ends it */
function focusHeading(main) {
  const focus = () => {
    const heading = main.querySelector("h1");
    if (!heading) return false;
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    return true;
  };
  if (focus()) return () => {};
  const observer = new MutationObserver(() => focus() && observer.disconnect());
  observer.observe(main, { childList: true, subtree: true });
  return () => observer.disconnect();
}

/** While the page grows, unless the user scrolls. @param {HTMLElement} main @param {number} y */
function scrollTo(main, y) {
  window.scrollTo(0, y);
  if (!y) return () => {};
  const end = () => {
    observer.disconnect();
    for (const event of OWN_WAY) window.removeEventListener(event, end);
  };
  const observer = new ResizeObserver(() => window.scrollTo(0, y));
  observer.observe(main);
  for (const event of OWN_WAY) window.addEventListener(event, end, { passive: true });
  return end;
}

/** @param {string} view changes with each step to another view */
export function useArrival(view) {
  const isFirst = useRef(true);
  useLayoutEffect(() => {
    const main = document.querySelector("main");
    // After a load the focus is where the browser puts it.
    const ends = [scrollTo(main, scrollHere()), ...(isFirst.current ? [] : [focusHeading(main)])];
    isFirst.current = false;
    const end = () => ends.forEach((one) => one());
    const timer = setTimeout(end, WITHIN_MS);
    return () => {
      clearTimeout(timer);
      end();
    };
  }, [view]);
}
