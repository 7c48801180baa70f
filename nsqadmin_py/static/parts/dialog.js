// Dialogs: the browser's own, so that nothing behind them can be reached, and the focus goes back to where it was.

import { explain } from "../lib/api.js";
import { curlOf } from "../lib/curl.js";
import { name, plain } from "../lib/format.js";
import { html, useEffect, useId, useRef, useState } from "../lib/html.js";
import { Store, useStore } from "../lib/store.js";
import { CopyButton } from "./copy.js";

/**
 * A dialog while it is drawn.
 * @param {{title: any, onClose: () => void, wide?: boolean, children: any}} props
 */
export function Dialog({ title, onClose, wide = false, children }) {
  const box = useRef(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    box.current.querySelector("[data-focus]")?.focus();
    return () => before instanceof HTMLElement && before.isConnected && before.focus();
  }, []);
  const onCancel = (event) => {
    if (event.target !== box.current) return; // a file chooser inside says cancel as well
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${box} class=${wide ? "dialog wide" : "dialog"} aria-labelledby=${id} onCancel=${onCancel}>
    <header class="dialog-head">
      <h2 id=${id}>${title}</h2>
      <button type="button" class="icon-button" aria-label="Close" onClick=${onClose}>×</button>
    </header>
    ${children}
  </dialog>`;
}

// ---- dialogs that one waits for

/** @type {Store<{id: number, part: Function, props: object}[]>} */
const open = new Store([]);
let lastId = 0;

/**
 * Opens a dialog at the end of the page, so that no style of what surrounds its button applies.
 * @param {Function} part gets `props` and `done(answer)` @param {object} [props] @returns {Promise<any>}
 */
export function show(part, props = {}) {
  return new Promise((resolve) => {
    const id = (lastId += 1);
    const done = (answer) => {
      open.set(open.value.filter((one) => one.id !== id));
      resolve(answer);
    };
    open.set([...open.value, { id, part, props: { ...props, done } }]);
  });
}

/** Where they are shown; once in the page. */
export function Dialogs() {
  return useStore(open).map(({ id, part, props }) => html`<${part} key=${id} ...${props} />`);
}

/**
 * Asks whether to do what cannot be undone.
 * @param {object} question
 * @param {string} question.title
 * @param {any} [question.text] text or vnode
 * @param {string} [question.warning] a danger that is no loss
 * @param {string[]} [question.loses] what will be lost: "12,345 messages waiting", "2 channels: a, b"
 * @param {string} [question.button]
 * @param {string} [question.phrase] has to be typed first: the name of what is lost
 * @param {boolean} [question.danger] false where nothing is lost; then the button is not red
 * @param {Record<string, any>[]} [question.curl] the actions, which can be copied as commands
 * @returns {Promise<boolean>}
 */
export function confirm(question) {
  return show(Confirm, question);
}

function Confirm({ title, text, warning = "", loses = [], button = "Do it", phrase = "", danger = true, curl = [], done }) {
  const [typed, setTyped] = useState("");
  const id = useId();
  const isReady = !phrase || [phrase, plain(phrase)].includes(typed.trim());
  const onSubmit = (event) => {
    event.preventDefault();
    if (isReady) done(true);
  };
  return html`<${Dialog} title=${plain(title)} onClose=${() => done(false)}>
    <form class="dialog-body" onSubmit=${onSubmit} novalidate>
      ${text && html`<p>${typeof text === "string" ? plain(text) : text}</p>`}
      ${warning && html`<p class="banner warning">${plain(warning)}</p>`}
      ${loses.length > 0 && html`<div class="loses">
        <p>This will be lost:</p>
        <ul>${loses.map((line) => html`<li key=${line}>${plain(line)}</li>`)}</ul>
      </div>`}
      ${curl.length > 0 && html`<p><${CopyButton} text=${() => curlOf(...curl)} label="Copy as curl" /></p>`}
      ${phrase && html`<div class="field">
        <label for=${id}>Type ${name(phrase)} to confirm</label>
        <input id=${id} class="input" value=${typed} autocomplete="off" autocapitalize="off" spellcheck=${false}
          onInput=${(event) => setTyped(event.target.value)} />
      </div>`}
      <div class="dialog-buttons">
        <button type="button" class="button" data-focus onClick=${() => done(false)}>Cancel</button>
        <button type="submit" class="button ${danger ? "danger" : "primary"}" disabled=${!isReady}>${button}</button>
      </div>
    </form>
  </${Dialog}>`;
}

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {"text" | "textarea" | "number" | "select" | "checkbox" | "datetime-local"} [type]
 * @property {any} [value]
 * @property {(string | {value: string, label: string})[]} [options] of a select; of a text, what is suggested
 * @property {boolean} [required]
 * @property {string} [help]
 * @property {string} [placeholder]
 * @property {string} [pattern]
 * @property {number} [min]
 * @property {number} [max]
 */

/**
 * Asks for some values. With `check`, which may throw or give a text, the dialog stays open and says what is wrong.
 * @param {{title: string, text?: any, fields: Field[], button?: string, check?: (values: any) => any,
 *   curl?: (values: any) => object}} question `curl` gives the action, which can be copied as a command
 * @returns {Promise<Record<string, any> | null>} by the names of the fields: text, number or boolean
 */
export function ask(question) {
  return show(Ask, question);
}

function Ask({ title, text, fields, button = "OK", check, curl, done }) {
  const form = useRef(null);
  const [wrong, setWrong] = useState("");
  const [isBusy, setBusy] = useState(false);
  const onSubmit = async (event) => {
    event.preventDefault();
    const values = valuesOf(fields, event.target);
    setBusy(true);
    try {
      const words = await check?.(values);
      if (typeof words === "string" && words) setWrong(words);
      else done(values);
    } catch (error) {
      setWrong(explain(error));
    } finally {
      setBusy(false);
    }
  };
  return html`<${Dialog} title=${plain(title)} onClose=${() => done(null)}>
    <form class="dialog-body" ref=${form} onSubmit=${onSubmit}>
      ${text && html`<p>${typeof text === "string" ? plain(text) : text}</p>`}
      ${fields.map((field, i) => html`<${FormField} key=${field.name} ...${field} first=${i === 0} />`)}
      <p class="wrong" role="alert">${plain(wrong)}</p>
      <div class="dialog-buttons">
        ${curl && html`<${CopyButton} text=${() => curlOf(curl(valuesOf(fields, form.current)))} label="Copy as curl" />`}
        <button type="button" class="button" onClick=${() => done(null)}>Cancel</button>
        <button type="submit" class="button primary" disabled=${isBusy}>${button}</button>
      </div>
    </form>
  </${Dialog}>`;
}

/** @param {Field[]} fields @param {HTMLFormElement} form */
function valuesOf(fields, form) {
  return Object.fromEntries(fields.map((field) => {
    const input = form.elements.namedItem(field.name);
    if (field.type === "checkbox") return [field.name, input.checked];
    if (field.type === "number") return [field.name, input.value === "" ? null : Number(input.value)];
    return [field.name, field.type === "textarea" ? input.value : input.value.trim()];
  }));
}

/** A field with its label, for forms of one's own too. @param {Field & {first?: boolean}} props */
export function FormField({
  name: key, label, type = "text", value, options = [], required, help, first, children, ...more
}) {
  const id = useId();
  const common = {
    id, name: key, required, "data-focus": first ? "" : undefined,
    "aria-describedby": help ? `${id}-help` : undefined, ...more,
  };
  const listed = options.map((option) => (typeof option === "string" ? { value: option, label: option } : option));
  const helped = help && html`<p class="help" id=${`${id}-help`}>${help}</p>`;
  if (type === "checkbox") {
    return html`<div class="field check">
      <input type="checkbox" ...${common} defaultChecked=${Boolean(value)} /><label for=${id}>${label}</label>${helped}
    </div>`;
  }
  const input = type === "select"
    ? html`<select class="input" ...${common}>${listed.map((option) => html`<option key=${option.value}
        value=${option.value} selected=${option.value === value}>${plain(option.label)}</option>`)}</select>`
    : type === "textarea"
      ? html`<textarea class="input" rows="6" ...${common} defaultValue=${value ?? ""}></textarea>`
      : html`<input class="input" type=${type} autocomplete="off" autocapitalize="off" spellcheck=${false} ...${common}
          defaultValue=${value ?? ""} list=${listed.length ? `${id}-list` : undefined} />
        ${listed.length > 0 && html`<datalist id=${`${id}-list`}>${listed.map((option) =>
          html`<option key=${option.value} value=${option.value}>${plain(option.label)}</option>`)}</datalist>`}`;
  return html`<div class="field"><label for=${id}>${label}</label>${input}${helped}</div>`;
}
