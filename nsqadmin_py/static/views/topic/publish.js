// A message to try things out with, or several in a row: the dialog stays open.

import { act, at, explain, get } from "../../lib/api.js";
import { curlOf } from "../../lib/curl.js";
import { clock, count, plain } from "../../lib/format.js";
import { html, useMemo, useRef, useState } from "../../lib/html.js";
import { CopyButton } from "../../parts/copy.js";
import { Dialog, FormField } from "../../parts/dialog.js";
import { fromBase64, toBase64 } from "../messages/message_body.js";
import { usePolled } from "../shared/polling.js";
import { TOPIC } from "./create.js";

const FORMS = [
  { value: "body", label: "Text" },
  { value: "body_base64", label: "base64 (for binary data)" },
];
const ANY = { value: "", label: "Any healthy one" };
// Characters that would be changed, or could not be seen, in a field.
const HIDDEN = /[\p{Cf}\u0000-\u0008\u000b-\u001f\u007f]/u;
const LONGEST_DEFER_MS = 365 * 24 * 3600 * 1000;

/**
 * @param {object} props
 * @param {string} props.topic
 * @param {string[]} [props.nodes]  addresses of those that have it, where they are known
 * @param {{id: string, body: Uint8Array}} [props.copy]  a message that is published again, perhaps edited
 * @param {() => void} props.onClose
 */
export function PublishDialog({ topic, nodes, copy, onClose }) {
  const form = useRef(null);
  const [result, setResult] = useState({ count: 0, text: "", isWrong: false });
  const [isBusy, setBusy] = useState(false);
  const publish = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setResult(await published(orderOf(topic, new FormData(form.current), copy), result.count));
    setBusy(false);
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.current.requestSubmit();
  };
  const [target, setTarget] = useState(topic);
  const nsqds = useNsqdOptions(topic, target, nodes);
  const given = useMemo(() => (copy ? editable(copy.body) : {}), [copy]);
  const title = copy ? `Publish ${plain(copy.id)} again` : `Publish to ${plain(topic)}`;
  return html`<${Dialog} title=${title} onClose=${onClose} wide>
    <form class="dialog-body" ref=${form} onSubmit=${publish} onKeyDown=${onKeyDown}>
      ${copy && html`<p>A new message is published; the one that you see stays where it is.</p>
        <${FormField} ...${TOPIC} name="topic" label="To topic" value=${topic} help=""
          onInput=${(event) => setTarget(event.target.value.trim())} />`}
      <${FormField} name="body" label="Body" type="textarea" required spellcheck=${false} first
        value=${given.text} help="Ctrl+Enter publishes." />
      <div class="form-row">
        <${FormField} name="form" label="Format" type="select" options=${FORMS} value=${given.form} />
        <${FormField} name="defer_ms" label="Defer (ms)" type="number" min="0" max=${LONGEST_DEFER_MS}
          placeholder="0" />
        <${FormField} name="node" label="nsqd" type="select" options=${nsqds} />
      </div>
      <p class=${result.isWrong ? "wrong" : "muted"} role="status">${result.text}</p>
      <div class="dialog-buttons">
        <${CopyButton} text=${() => curlOf(orderOf(topic, new FormData(form.current), copy))} label="Copy as curl" />
        <button type="button" class="button" onClick=${onClose}>Close</button>
        <button type="submit" class="button primary" disabled=${isBusy}>Publish</button>
      </div>
    </form>
  <//>`;
}

/**
 * A body as the field takes it: a text field changes the ends of lines that are not \n.
 * @param {Uint8Array} body @returns {{text: string, form: "body" | "body_base64"}}
 */
function editable(body) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
    if (!HIDDEN.test(text)) return { text, form: "body" };
  } catch {
    // It is not UTF-8.
  }
  return { text: toBase64(body), form: "body_base64" };
}

/** The nsqds to choose from. Who has the topic is known of the one that the dialog was opened for. */
function useNsqdOptions(topic, target, nodes) {
  const { data } = usePolled("nodes", () => get("/nodes"), 0);
  const { data: own } = usePolled(topic, async () => (nodes ? {} : get(at("topics", topic))), 0);
  const having = nodes ?? own?.rows.filter((row) => !row.channel).map((row) => row.node);
  return [ANY, ...nsqdOptions(data?.rows ?? [], target === topic ? having : null)];
}

/**
 * @param {{node: string, state: string, standby?: object | null}[]} rows  all nsqds
 * @param {string[] | null | undefined} having  those that have the topic, which come first; null: not known
 * @returns {{value: string, label: string}[]}
 */
export function nsqdOptions(rows, having) {
  const serving = rows.filter((row) => !row.standby && row.state !== "gone");
  const lacks = ({ node }) => Boolean(having && !having.includes(node));
  return [...serving.filter((row) => !lacks(row)), ...serving.filter(lacks)].map((row) => {
    const note = row.state === "failed" ? " (does not answer)" : lacks(row) ? " (creates the topic there)" : "";
    return { value: row.node, label: row.node + note };
  });
}

function orderOf(topic, fields, copy) {
  const order = { action: "publish", topic: fields.get("topic")?.trim() ?? topic };
  if (copy) order.copy_of = copy.id;
  const body = fields.get("body");
  if (fields.get("form") === "body") order.body = body;
  else order.body_base64 = body.replace(/\s+/g, "");
  if (Number(fields.get("defer_ms"))) order.defer_ms = Number(fields.get("defer_ms"));
  if (fields.get("node")) order.node = fields.get("node");
  return order;
}

/** `before`: how many were published from this dialog. */
async function published(order, before) {
  if (order.body_base64 !== undefined && !fromBase64(order.body_base64)) {
    return { count: before, text: "The body is not base64.", isWrong: true };
  }
  try {
    const { node } = await act(order);
    const when = order.defer_ms ? `, to be delivered in ${count(order.defer_ms)} ms` : "";
    const text = `${plain(node)} has it${when} (${clock(Date.now())}; ${count(before + 1)} published so far).`;
    return { count: before + 1, text, isWrong: false };
  } catch (error) {
    return { count: before, text: plain(explain(error)), isWrong: true };
  }
}
