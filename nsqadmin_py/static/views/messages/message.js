// A message with its body, in the form that reads best, and what can be done with it.

import { explain, href, load } from "../../lib/api.js";
import { bytes, clock, count, plain, time } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { CopyButton } from "../../parts/copy.js";
import { show } from "../../parts/dialog.js";
import { notify } from "../../parts/notices.js";
import { counted } from "../shared/lost_messages.js";
import { PublishDialog } from "../topic/publish.js";
import { formsOf, toBase64, visible } from "./message_body.js";

// A longer text is shown as a whole only on request.
const SHOWN_CHARACTERS = 4000;
const MOST_EDITED_BYTES = 1024 * 1024;

/**
 * @param {object} props
 * @param {object} props.message  one of /channel/peek, or of the log
 * @param {string} props.topic
 * @param {{path: string, node: string}} props.source  where its whole body is, and the words of that query
 * @param {any} [props.children]  more buttons
 */
export function Message({ message, topic, source: { path, ...words }, children }) {
  const { body, forms } = useMemo(() => formsOf(message), [message]);
  const [shown, setShown] = useState(forms[0].name);
  const [isWhole, setWhole] = useState(false);
  const text = useMemo(() => forms.find((form) => form.name === shown).text(), [forms, shown]);
  const isLong = !isWhole && text.length > SHOWN_CHARACTERS;
  const whole = async () => (message.is_cut ? load(path, words) : body);
  return html`<li class="card">
    <div class="card-head">
      <code>${plain(message.id)}</code>
      ${metadataOf(message).map((fact) => html`<span key=${fact}>${fact}</span>`)}
      ${time(message.timestamp)}
      <span>${bytes(message.size)}</span>
      ${message.is_cut && html`<span class="badge warning" title="The rest is in the download">
        truncated: the first ${bytes(body.length)}</span>`}
      <span class="card-tools">
        ${forms.length > 1 && html`<${Forms} forms=${forms} shown=${shown} onChange=${setShown} />`}
        <${CopyButton} text=${text} label=${message.is_cut ? "Copy what is shown" : "Copy"} />
        <${CopyButton} text=${async () => toBase64(await whole())} label="Copy as base64" />
        <a class="button small" href=${href(path, words)} download>Download</a>
        <${PublishAgain} topic=${topic} message=${message} whole=${whole} />
        ${children}
      </span>
    </div>
    <pre class="pre" tabindex="0" aria-label=${`Body as ${shown}`}>
      ${visible(isLong ? text.slice(0, SHOWN_CHARACTERS) : text)}
    </pre>
    ${isLong && html`<button type="button" class="button small" onClick=${() => setWhole(true)}>
      Show all ${count(text.length)} characters</button>`}
  </li>`;
}

/** What is known next to id, time and size. */
function metadataOf(message) {
  return [
    message.attempts === undefined ? "" : attemptsText(message.attempts),
    message.seq === undefined ? "" : `number ${count(message.seq)}`,
    message.deadline ? `with ${plain(message.client) || "a client that is gone"} until ${clock(message.deadline)}` : "",
    message.due ? `deferred until ${clock(message.due)}` : "",
  ].filter(Boolean);
}

function attemptsText(attempts) {
  return attempts ? counted(attempts, "attempt") : "not attempted yet";
}

function Forms({ forms, shown, onChange }) {
  return html`<select class="input" aria-label="Show the body as" value=${shown}
      onChange=${(event) => onChange(event.target.value)}>
    ${forms.map(({ name: form }) => html`<option key=${form} value=${form}>as ${form}</option>`)}
  </select>`;
}

function PublishAgain({ topic, message, whole }) {
  const open = async () => {
    if (message.size > MOST_EDITED_BYTES) {
      notify(`A body of ${bytes(message.size)} is too large to edit here. Download it, and POST it to /pub of an nsqd.`,
        "warning");
      return;
    }
    try {
      const copy = { id: message.id, body: await whole() };
      show(({ done }) => html`<${PublishDialog} topic=${topic} copy=${copy} onClose=${done} />`);
    } catch (error) {
      notify(explain(error), "error");
    }
  };
  return html`<button type="button" class="button small" onClick=${open}>Publish again …</button>`;
}
