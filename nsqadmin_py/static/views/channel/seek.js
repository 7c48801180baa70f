// A channel goes back to what was published earlier, or forward: to a time, the earliest that is retained, or the latest.

import { at, explain, get, whyNot } from "../../lib/api.js";
import { name, plain, timeText } from "../../lib/format.js";
import { html, useEffect, useId, useState } from "../../lib/html.js";
import { ActionButton, perform } from "../../parts/actions.js";
import { Dialog, FormField, confirm } from "../../parts/dialog.js";
import { isEphemeral } from "../shared/badges.js";
import { effectOf, effectText, skippedText } from "./seek_effect.js";

const MINUTE_MS = 60_000;
const TARGETS = [
  ["minutes", "Minutes ago"], ["time", "A date and time"], ["earliest", "The oldest message that is kept"],
  ["latest", "The latest message: skip the backlog"],
];
const FIRST_MINUTES = 10;

/** @param {{topic: string, channel?: string, channels?: string[]}} props  one channel, or several to choose from */
export function SeekButton({ topic, channel, channels }) {
  const [isOpen, setOpen] = useState(false);
  const unless = reasonAgainst(topic, channel ?? channels?.[0]);
  return html`
    <${ActionButton} label="Seek" unless=${unless} title="Deliver earlier messages again, or skip waiting ones"
      order=${() => setOpen(true)} of=${{ action: "seek", topic }} />
    ${isOpen && html`<${SeekDialog} topic=${topic} channel=${channel} channels=${channels}
      onClose=${() => setOpen(false)} />`}
  `;
}

function reasonAgainst(topic, channel) {
  if (isEphemeral(topic)) return "An ephemeral topic keeps nothing to seek in.";
  return channel ? "" : "The topic has no channel.";
}

/**
 * @param {object} props
 * @param {string} props.topic
 * @param {string} [props.channel]
 * @param {string[]} [props.channels]  to choose from, where no `channel` is given
 * @param {string} [props.node]  only on this nsqd
 * @param {number | "earliest" | "latest"} [props.to]  what is chosen at first; ms since the epoch
 * @param {() => void} props.onClose
 */
export function SeekDialog({ topic, channel, channels = [], node = "", to, onClose }) {
  const [chosen, setChosen] = useState(channel ?? channels[0] ?? "");
  const [choice, setChoice] = useState(firstChoice(to));
  const known = useFigures(topic, chosen, node);
  const target = targetOf(choice);
  const effect = known.logs && target !== null ? effectOf(known.logs, known.parts, target) : null;
  const seek = async (event) => {
    event.preventDefault();
    const order = { action: "seek", topic, channel: chosen, ...(node ? { node } : {}), to: toText(target) };
    if (!(await confirm({ ...questionOf(order, target, effect), curl: [order] }))) return;
    if (await perform(order, sought)) onClose();
  };
  return html`<${Dialog} title=${`Seek ${plain(chosen || topic)}`} onClose=${onClose}>
    <form class="dialog-body" onSubmit=${seek}>
      ${!channel && html`<${ChannelField} channels=${channels} chosen=${chosen} onChange=${setChosen} />`}
      <${ChoiceFields} choice=${choice} onChange=${setChoice} />
      <${Effect} known=${known} target=${target} effect=${effect} />
      <div class="dialog-buttons">
        <button type="button" class="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="button primary" disabled=${target === null || Boolean(whyNot())}>Seek …</button>
      </div>
    </form>
  <//>`;
}

function firstChoice(to) {
  const isTime = typeof to === "number";
  const timeMs = isTime ? to : Date.now() - FIRST_MINUTES * MINUTE_MS;
  return { kind: isTime ? "time" : to ?? "minutes", minutes: FIRST_MINUTES, time: localTime(timeMs) };
}

/** As fields of type datetime-local want it. */
function localTime(timeMs) {
  return new Date(timeMs - new Date(timeMs).getTimezoneOffset() * MINUTE_MS).toISOString().slice(0, 19);
}

/** "earliest", "latest", ms since the epoch; null where what is typed is no time. */
function targetOf({ kind, minutes, time }) {
  if (kind === "minutes") return minutes > 0 ? Date.now() - minutes * MINUTE_MS : null;
  if (kind !== "time") return kind;
  const timeMs = new Date(time).getTime();
  return Number.isNaN(timeMs) ? null : timeMs;
}

function toText(target) {
  return typeof target === "number" ? new Date(target).toISOString() : target;
}

/** What the logs keep, and what the channel has to deliver, on each nsqd. */
function useFigures(topic, channel, node) {
  const [known, setKnown] = useState({ logs: null, parts: [], message: "" });
  useEffect(() => {
    let isOver = false;
    const params = node ? { node } : {};
    Promise.all([get(at("topics", topic, "log"), params), get(at("topics", topic, "channels", channel))])
      .then(([log, parts]) => ({ logs: log.nodes, parts: parts.rows, message: "" }))
      .catch((error) => ({ logs: null, parts: [], message: explain(error) }))
      .then((news) => isOver || setKnown(news));
    return () => { isOver = true; };
  }, [topic, channel, node]);
  return known;
}

function ChannelField({ channels, chosen, onChange }) {
  return html`<${FormField} name="channel" label="Channel" type="select" options=${channels} value=${chosen}
    onChange=${(event) => onChange(event.target.value)} />`;
}

function ChoiceFields({ choice, onChange }) {
  const id = useId();
  const change = (words) => onChange({ ...choice, ...words });
  return html`
    <fieldset class="choices">
      <legend>Deliver from</legend>
      ${TARGETS.map(([kind, label], i) => html`<div key=${kind} class="field check">
        <input id=${`${id}-${kind}`} type="radio" name="target" value=${kind} checked=${choice.kind === kind}
          data-focus=${i ? undefined : ""} onChange=${() => change({ kind })} />
        <label for=${`${id}-${kind}`}>${label}</label>
      </div>`)}
    </fieldset>
    ${choice.kind === "minutes" && html`<${FormField} name="minutes" label="Minutes" type="number" min="0.1" step="any"
      value=${choice.minutes} onInput=${(event) => change({ minutes: Number(event.target.value) })} />`}
    ${choice.kind === "time" && html`<${FormField} name="time" label="Local time" type="datetime-local" step="1"
      value=${choice.time} onInput=${(event) => change({ time: event.target.value })} />`}
  `;
}

function Effect({ known, target, effect }) {
  if (known.message) return html`<p class="wrong" role="status">${plain(known.message)}</p>`;
  if (target === null) return html`<p class="muted" role="status">Enter a time.</p>`;
  if (!effect) return html`<p class="muted" role="status">Looking at the logs …</p>`;
  return html`<div role="status">
    <p>${effectText(effect)}</p>
    ${effect.unable.map(({ node, error }) => html`
      <p key=${node} class="muted">No change on ${name(node)}: ${plain(error)}.</p>
    `)}
  </div>`;
}

function questionOf({ topic, channel, node }, target, effect) {
  const where = node ? ` on ${node}` : "";
  const aim = typeof target === "number" ? `to the messages published since ${timeText(target)}` : `to the ${target}`;
  const skipped = effect?.skipped ?? 0;
  const effects = effect ? ` ${effectText(effect)}` : "";
  return {
    title: `Seek ${channel}?`,
    text: `The channel ${channel} of ${topic} moves ${aim}${where}.${effects} More may have arrived since.`,
    loses: skipped ? [skippedText(skipped)] : [],
    button: "Seek",
    danger: skipped > 0,
    ...(skipped ? { phrase: channel } : {}),
  };
}

function sought({ nodes }) {
  const done = nodes.filter((node) => node.answer).length;
  return `The channel now delivers from there, on ${done} of ${nodes.length} nsqds.`;
}
