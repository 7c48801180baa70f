// Numbers, times and foreign texts, as people read them.

import { html } from "./html.js";

const NONE = "–";
const NO_BREAK = "\u00a0";
const NS_IN = { us: 1e3, ms: 1e6, s: 1e9, min: 60e9, h: 3600e9, d: 86400e9 };
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const hundredths = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
// In the time zone of the browser, but written as the rest of the page: in English, days before months, 24 hours.
const dateTime = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const clockTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const minuteTime = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const dayOfYear = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** @param {unknown} value @returns {value is number} */
function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** "12,345" @param {number | null | undefined} n @returns {string} */
export function count(n) {
  return isNumber(n) ? whole.format(n) : NONE;
}

/** Three digits that matter: "12.3". @param {number} n */
function digits(n) {
  const size = Math.abs(n);
  const text = n.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** "12.3k"; what is more than nothing never reads 0. @param {number | null | undefined} n @returns {string} */
export function short(n) {
  if (!isNumber(n)) return NONE;
  if (n > 0 && n < 0.01) return "<0.01";
  // From 999.5 on, since that is written 1000.
  const unit = [[999.5e9, 1e12, "T"], [999.5e6, 1e9, "G"], [999.5e3, 1e6, "M"], [999.5, 1e3, "k"]]
    .find(([from]) => Math.abs(n) >= from);
  return unit ? digits(n / unit[1]) + unit[2] : digits(n);
}

/** "1,234.5", for a column with the unit in its head. @param {number | null | undefined} n @returns {string} */
export function tenth(n) {
  if (!isNumber(n)) return NONE;
  return n > 0 && n < 0.05 ? "<0.1" : tenths.format(n);
}

/** "41.93" of ns, for a column of milliseconds. @param {number | null | undefined} ns @returns {string} */
export function milliseconds(ns) {
  if (!isNumber(ns)) return NONE;
  return ns > 0 && ns < NS_IN.ms / 200 ? "<0.01" : hundredths.format(ns / NS_IN.ms);
}

/** "1.5 MiB" @param {number | null | undefined} n @returns {string} */
export function bytes(n) {
  if (!isNumber(n)) return NONE;
  let size = n;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(size) < 1023.5) return `${unit === "B" ? whole.format(size) : digits(size)} ${unit}`;
    size /= 1024;
  }
  return `${digits(size)} TiB`;
}

/** "2 h 5 min"; two units at most, in one line. @param {number | null | undefined} ns @returns {string} */
export function duration(ns) {
  if (!isNumber(ns)) return NONE;
  if (Math.abs(ns) < NS_IN.min) return latency(ns);
  let rest = Math.round(Math.abs(ns) / NS_IN.s) * NS_IN.s;
  const parts = [];
  for (const unit of ["d", "h", "min", "s"]) {
    const n = Math.floor(rest / NS_IN[unit]);
    rest -= n * NS_IN[unit];
    if (n || parts.length) parts.push(n ? `${n}${NO_BREAK}${unit}` : "");
  }
  return (ns < 0 ? "-" : "") + parts.slice(0, 2).filter(Boolean).join(NO_BREAK);
}

/** A duration in whole seconds, at least one, that does not flicker while it grows. @param {number} s @returns {string} */
export function age(s) {
  return duration(Math.max(1, Math.floor(s)) * 1e9);
}

/** "41.9 ms" @param {number | null | undefined} ns @returns {string} */
export function latency(ns) {
  if (!isNumber(ns)) return NONE;
  const size = Math.abs(ns);
  if (size < 999.5) return `${digits(ns)}${NO_BREAK}ns`;
  if (size < 999.5e3) return `${digits(ns / NS_IN.us)}${NO_BREAK}µs`;
  if (size < 999.5e6) return `${digits(ns / NS_IN.ms)}${NO_BREAK}ms`;
  return size < NS_IN.min ? `${digits(ns / NS_IN.s)}${NO_BREAK}s` : duration(ns);
}

/** A time in s, ms, µs or ns since the epoch, by its size. @param {number} value */
function dateOf(value) {
  const scales = [[1e17, 1e-6], [1e14, 1e-3], [1e11, 1]];
  const scale = scales.find(([from]) => value >= from)?.[1] ?? 1e3;
  return new Date(value * scale);
}

/** @param {number | null | undefined} value @returns {value is number} */
function isTime(value) {
  return isNumber(value) && value > 0;
}

/** "21 Nov 2026, 16:22:54" @param {number | null | undefined} value s or ns @returns {string} */
export function timeText(value) {
  return isTime(value) ? dateTime.format(dateOf(value)) : NONE;
}

/** "16:22:54" @param {number | null | undefined} value s or ns @returns {string} */
export function clock(value) {
  return isTime(value) ? clockTime.format(dateOf(value)) : NONE;
}

/**
 * As short as the step between times allows: "16:22:50", "16:22", and at midnight "21 Nov".
 * @param {number} value s or ns @param {number} step_s @returns {string}
 */
export function axisTime(value, step_s) {
  const date = dateOf(value);
  const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (isMidnight) return dayOfYear.format(date);
  return (step_s < 60 ? clockTime : minuteTime).format(date);
}

/** "2026-11-21T16:22:54.000Z" @param {number | null | undefined} value s or ns @returns {string} */
export function iso(value) {
  return isTime(value) ? dateOf(value).toISOString() : "";
}

/** A <time>, local, with the ISO form as its title. @param {number | null | undefined} value s or ns */
export function time(value) {
  if (!isTime(value)) return html`<span class="zero">${NONE}</span>`;
  return html`<time datetime=${iso(value)} title=${iso(value)}>${timeText(value)}</time>`;
}

/** "5 min ago", of an age in s. @param {number | null | undefined} s @returns {string} */
export function ago(s) {
  if (!isNumber(s)) return NONE;
  if (s < 1.5) return "now";
  const longest = duration(Math.round(s) * 1e9).split(NO_BREAK);
  return `${longest.slice(0, s < 7200 ? 2 : 4).join(NO_BREAK)} ago`;
}

/**
 * A figure. Zero is dimmed; a rate of zero is a dash, so that others stand out, and what is not known a question mark.
 * @param {number | null | undefined} n @param {(n: any) => string} [form]
 */
export function figure(n, form = count) {
  if (!isNumber(n)) return html`<span class="figure unknown" title="Not known">?</span>`;
  if (n === 0 && form === tenth) return html`<span class="figure zero" title="0 per second">${NONE}</span>`;
  return html`<span class=${n ? "figure" : "figure zero"}>${form(n)}</span>`;
}

/** A text; one that says that there is nothing is dimmed as a zero is. @param {string} text */
export function dimmed(text) {
  return html`<span class=${text === NONE ? "figure zero" : "figure"}>${text}</span>`;
}

const PICTURES_OF_CONTROLS = 0x2400;
// Of a longer one, the beginning: laying out lists of 10 kB names takes browsers minutes.
const MOST_OF_A_TEXT = 1000;
const MOST_OF_A_NAME = 200;
// A name up to the length of an IPv4 address with a port is not broken within a word in a table.
const SHORT_NAME = 21;
// Controls, marks of no width and of the direction of writing, ends of lines, fillers, tags, halves of pairs.
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\u115f\u1160\u3164\uffa0]/gu;

/**
 * A foreign text that cannot disturb what is around it: characters that cannot be seen become ones that can.
 * @param {unknown} text @param {number} [most] characters of it @returns {string}
 */
export function plain(text, most = MOST_OF_A_TEXT) {
  const whole = String(text ?? "");
  const shown = whole.length > most ? `${whole.slice(0, most)}…` : whole;
  return shown.replace(HIDDEN, (character) => {
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCharCode(PICTURES_OF_CONTROLS + code);
    return code === 0x7f ? "\u2421" : `‹U+${code.toString(16).toUpperCase().padStart(4, "0")}›`;
  });
}

/** A foreign name, in its own direction. @param {unknown} text */
export function name(text) {
  const shown = plain(text, MOST_OF_A_NAME);
  return html`<bdi class=${shown.length > SHORT_NAME ? "name" : "name short-name"}>${shown}</bdi>`;
}
