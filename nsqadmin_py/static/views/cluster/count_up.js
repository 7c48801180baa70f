// A big number that counts up to what it becomes, as fast as it grows.

import { count } from "../../lib/format.js";
import { html, useLayoutEffect, useRef } from "../../lib/html.js";

// As long as from one value to the next, within reason: the number never stands still, nor lags far behind.
const SHORTEST_MS = 250;
const LONGEST_MS = 5000;
// What is read out does not change with every frame.
const SPOKEN_EVERY_MS = 10_000;
// As smooth as it has to be: each change of so large a number draws much of the page again.
const FRAME_MS = 50;

/**
 * How far a number has come.
 * @param {number} from
 * @param {number} to
 * @param {number} part  0 to 1
 * @returns {number}  whole
 */
export function between(from, to, part) {
  return Math.round(from + (to - from) * Math.min(1, Math.max(0, part)));
}

/**
 * A value that falls (an nsqd has been started again) is shown at once; so is the first one, and all of them where
 * people want no motion.
 * @param {{value: number, label: string}} props
 */
export function CountUp({ value, label }) {
  const digits = useRef(null);
  const spoken = useRef(null);
  const memory = useRef({ shown: null, cameMs: 0, spokenMs: -Infinity });

  // Not useEffect, which ends only after the number is gone: a frame may come in between.
  useLayoutEffect(() => {
    const nowMs = performance.now();
    const { shown, cameMs, spokenMs } = memory.current;
    const lastsMs = Math.min(LONGEST_MS, Math.max(SHORTEST_MS, nowMs - cameMs));
    memory.current.cameMs = nowMs;
    if (nowMs - spokenMs > SPOKEN_EVERY_MS) {
      spoken.current.textContent = `${count(value)} ${label}`;
      memory.current.spokenMs = nowMs;
    }
    const write = (number) => {
      memory.current.shown = number;
      digits.current.textContent = count(number);
    };
    if (shown === null || value < shown || wantsNoMotion()) return write(value);
    let writtenMs = 0;
    let frame = requestAnimationFrame(function step(atMs) {
      const part = (atMs - nowMs) / lastsMs;
      if (part >= 1 || atMs - writtenMs >= FRAME_MS) {
        write(between(shown, value, part));
        writtenMs = atMs;
      }
      if (part < 1) frame = requestAnimationFrame(step);
    });
    return () => cancelAnimationFrame(frame);
  }, [value, label]);

  return html`
    <p>
      <span class="big-digits" aria-hidden="true" ref=${digits}></span>
      <span class="visually-hidden" ref=${spoken}></span>
      <span class="big-label" aria-hidden="true">${label}</span>
    </p>
  `;
}

function wantsNoMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}
