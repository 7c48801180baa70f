// A button that copies a text.

import { html, useEffect, useState } from "../lib/html.js";

const SAID_FOR_MS = 2000;

/** @param {{text: string | (() => string | Promise<string>), label: string, title?: string}} props */
export function CopyButton({ text, label, title }) {
  const [said, setSaid] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setSaid(""), SAID_FOR_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async (event) => setSaid(await copied(text, event.currentTarget));
  return html`<button type="button" class="button small" title=${title} onClick=${copy}>
    ${said || label}<span class="visually-hidden" role="status">${said}</span>
  </button>`;
}

/** What came of it. Over plain HTTP browsers have no clipboard, but the older way. */
async function copied(given, button) {
  try {
    const text = typeof given === "function" ? await given() : given;
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copyBySelection(text, button);
    return "Copied";
  } catch {
    return "Could not copy";
  }
}

/** Next to the button: in an open dialog nothing outside of it can have the focus. */
function copyBySelection(text, button) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "visually-hidden";
  button.parentNode.append(field);
  field.select();
  const isDone = document.execCommand("copy");
  field.remove();
  button.focus();
  if (!isDone) throw new Error("the browser does not copy");
}
