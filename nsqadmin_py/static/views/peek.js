// The messages that a channel would deliver next. They stay where they are.

import { at, explain, get, href, load } from "../lib/api.js";
import { bytes, count, name, plain, time } from "../lib/format.js";
import { html, useMemo, useState } from "../lib/html.js";
import { FormField } from "../parts/dialog.js";
import { Badge, Failed } from "../parts/state.js";
import { CopyButton } from "./copy.js";
import { counted } from "./losses.js";
import { formsOf, toBase64, visible } from "./message_body.js";

const COUNTS = ["1", "10", "50", "200", "1000"];
const FIRST_COUNT = "10";
const ALL = { value: "", label: "All" };
// What is longer is shown as a whole only if somebody wants it.
const SHOWN_CHARACTERS = 4000;

/** @param {{topic: string, channel: string, nodes: string[]}} props */
export function Peek({ topic, channel, nodes }) {
  const [seen, setSeen] = useState({ nodes: null, message: "", isBusy: false });
  const look = async (event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    setSeen((before) => ({ ...before, isBusy: true }));
    setSeen(await looked(topic, channel, { n: fields.get("n"), node: fields.get("node") }));
  };
  return html`<section class="section" aria-labelledby="peek">
    <div class="section-head">
      <h2 id="peek">Waiting messages</h2>
      <p class="note">In the order of delivery. Peeking takes nothing from the channel.</p>
    </div>
    <form class="form-row narrow" onSubmit=${look}>
      <${FormField} name="n" label="Messages per nsqd" type="select" options=${COUNTS} value=${FIRST_COUNT} />
      <${FormField} name="node" label="nsqd" type="select" options=${[ALL, ...nodes]} />
      <button type="submit" class="button" disabled=${seen.isBusy}>Peek</button>
    </form>
    <div role="status">${seen.message && html`<${Failed} message=${seen.message} />`}</div>
    ${seen.nodes?.map((node) => html`<${OfNode} key=${node.node} node=${node}
      path=${at("topics", topic, "channels", channel, "messages")} n=${seen.n} />`)}
  </section>`;
}

async function looked(topic, channel, params) {
  try {
    const { nodes } = await get(at("topics", topic, "channels", channel, "peek"), params);
    return { nodes, n: params.n, message: "", isBusy: false };
  } catch (error) {
    return { nodes: null, message: explain(error), isBusy: false };
  }
}

function OfNode({ node, path, n }) {
  const { answer, can } = node;
  return html`<section class="section" aria-label=${`Messages of ${plain(node.node)}`}>
    <div class="section-head">
      <h3>${name(node.node)}</h3>
      ${answer && html`<p class="note">${foundText(answer)}</p>`}
    </div>
    ${!answer && !can && html`<p class="note">This nsqd cannot show its waiting messages.</p>`}
    ${!answer && can && html`<${Failed} message=${node.error} />`}
    ${answer?.unreadable_count > 0 && html`<p>
      <${Badge} kind="warning">${count(answer.unreadable_count)} cannot be read from disk now<//>
    </p>`}
    ${answer?.messages.length > 0 && html`<ol class="card-list">
      ${answer.messages.map((message, i) => html`<${Message} key=${`${message.id} ${i}`} message=${message}
        source=${{ path: path + at(message.id), node: node.node, n }} />`)}
    </ol>`}
  </section>`;
}

function foundText({ messages, depth, in_flight_count: inFlight, deferred_count: deferred }) {
  const others = [[inFlight, "in flight"], [deferred, "deferred"]]
    .filter(([number]) => number).map(([number, words]) => `${count(number)} ${words}`);
  const more = others.length ? `; besides ${others.join(" and ")}` : "";
  return depth || messages.length ? `${count(messages.length)} of ${count(depth)}${more}` : `nothing waits${more}`;
}

/**
 * @param {object} props
 * @param {object} props.message  one of /channel/peek
 * @param {{path: string, node: string, n: number}} props.source  where its whole body is, and the words of the peek
 * @param {number} [props.attempts]  before it came to this channel
 */
export function Message({ message, source: { path, ...words }, attempts = 0 }) {
  const { body, forms } = useMemo(() => formsOf(message), [message]);
  const [shown, setShown] = useState(forms[0].name);
  const [isWhole, setWhole] = useState(false);
  const text = useMemo(() => forms.find((form) => form.name === shown).text(), [forms, shown]);
  const isLong = !isWhole && text.length > SHOWN_CHARACTERS;
  const whole = async () => toBase64(message.is_cut ? await load(path, words) : body);
  return html`<li class="card">
    <div class="card-head">
      <code>${plain(message.id)}</code>
      ${time(message.timestamp)}
      <span>${attemptsText(message.attempts, attempts)}</span>
      <span>${bytes(message.size)}</span>
      ${message.is_cut && html`<span class="badge warning" title="The rest is in the download">
        truncated: the first ${bytes(body.length)}</span>`}
      <span class="card-tools">
        ${forms.length > 1 && html`<${Forms} forms=${forms} shown=${shown} onChange=${setShown} />`}
        <${CopyButton} text=${text} label=${message.is_cut ? "Copy what is shown" : "Copy"} />
        <${CopyButton} text=${whole} label="Copy as base64" />
        <a class="button small" href=${href(path, words)} download>Download</a>
      </span>
    </div>
    <pre class="pre" tabindex="0" aria-label=${`Body as ${shown}`}>
      ${visible(isLong ? text.slice(0, SHOWN_CHARACTERS) : text)}
    </pre>
    ${isLong && html`<button type="button" class="button small" onClick=${() => setWhole(true)}>
      Show all ${count(text.length)} characters</button>`}
  </li>`;
}

function attemptsText(here, before) {
  const words = [before && `${counted(before, "attempt")} before`, here && counted(here, "attempt")].filter(Boolean);
  return words.join(", ") || "not attempted yet";
}

function Forms({ forms, shown, onChange }) {
  return html`<select class="input" aria-label="Show the body as" value=${shown}
      onChange=${(event) => onChange(event.target.value)}>
    ${forms.map(({ name: form }) => html`<option key=${form} value=${form}>as ${form}</option>`)}
  </select>`;
}
