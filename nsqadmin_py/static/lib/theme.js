// Light or dark: as the browser says, or as the user chose here.

import { Store, useStore } from "./store.js";

const STORAGE_KEY = "nsqadmin.theme";
const CHOICES = ["auto", "light", "dark"];
const darkness = window.matchMedia("(prefers-color-scheme: dark)");

/** What this browser remembers; nothing where it must not. @param {string} key */
export function remembered(key) {
  try {
    return localStorage.getItem(key) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} key @param {string} value */
export function remember(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // A browser that stores nothing: it holds for this page only.
  }
}

/** @returns {string} */
function storedChoice() {
  const choice = remembered(STORAGE_KEY);
  return CHOICES.includes(choice) ? choice : "auto";
}

const chosen = new Store(storedChoice());
const shown = new Store("light");

function apply() {
  const theme = chosen.value === "auto" ? (darkness.matches ? "dark" : "light") : chosen.value;
  document.documentElement.dataset.theme = theme;
  shown.set(theme);
}

export function startTheme() {
  darkness.addEventListener("change", apply);
  apply();
}

/** From auto to light to dark and round again. */
export function nextTheme() {
  chosen.set(CHOICES[(CHOICES.indexOf(chosen.value) + 1) % CHOICES.length]);
  remember(STORAGE_KEY, chosen.value);
  apply();
}

/** "auto", "light" or "dark". */
export function useChosenTheme() {
  return useStore(chosen);
}

/** "light" or "dark": what is seen. */
export function useTheme() {
  return useStore(shown);
}
