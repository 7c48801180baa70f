// What only nsqlookupds know: names that no nsqd has any more, or yet.

import { get, session, whyNot } from "../../lib/api.js";
import { name, plain } from "../../lib/format.js";
import { html, useMemo, useState } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { useTitle } from "../../lib/route.js";
import { ActionButton, perform } from "../../parts/actions.js";
import { FormField } from "../../parts/dialog.js";
import { Empty, Failed, Loading } from "../../parts/state.js";
import { sorted, Table } from "../../parts/table.js";
import { FailedLookups } from "../node/node_parts.js";
import { counted } from "../shared/lost_messages.js";
import { usePolled } from "../shared/polling.js";
import { deleteChannel, deleteTopic } from "../shared/questions.js";
import { searchedFor, SearchField } from "../shared/rows.js";
import { FIRST_CHANNEL, TOPIC } from "../topic/create.js";

const ASKED_EVERY_MS = 15_000;
// What is beyond is found by a search.
const MOST_SHOWN = 200;
const NOT_FOUND = "No topic or channel matches.";
const NONE_IDLE = "None: every topic that nsqlookupds know is on an nsqd.";

/** @param {{query: Record<string, string>}} props */
export function LookupView({ query }) {
  useTitle("Lookup");
  return html`
    <header class="title-row"><h1 tabindex="-1">Lookup</h1></header>
    ${session().lookupds > 0 ? html`<${Known} query=${query} />` : html`<${NoLookupds} />`}
  `;
}

function NoLookupds() {
  return html`
    <${Empty} title="There are no nsqlookupds">
      <p>This nsqadmin finds topics by asking the nsqds only. To use nsqlookupds, start it with
        <code>--lookupd-http-address</code>.</p>
    <//>
    <${Create} where="On all nsqds" />
  `;
}

function Known({ query }) {
  const { head } = useLive("overview");
  const { data, message, reload } = usePolled("lookup", () => get("/lookup"), ASKED_EVERY_MS);
  return html`
    <${FailedLookups} lookups=${head.failed_lookups} />
    <section class="section" aria-labelledby="idle">
      <h2 id="idle">Topics that no nsqd has</h2>
      <p class="muted">
        nsqlookupds know their names: they were created here in advance, or their nsqds have gone. A consumer that looks
        for one finds no nsqd.
      </p>
      ${message && html`<${Failed} message=${message} retry=${reload} />`}
      ${!data && !message && html`<${Loading} />`}
      ${data && html`<${Idle} answer=${data} query=${query} reload=${reload} />`}
    </section>
    <${Create} where="At all nsqlookupds" onDone=${reload} />
  `;
}

// ---- topics

function Idle({ answer, query, reload }) {
  const rows = useMemo(() => rowsOf(answer), [answer]);
  const columns = useMemo(() => columnsOf(reload), [reload]);
  const found = rows.filter((row) => searchedFor(query.search, row.topic, ...row.channels));
  const more = found.length - MOST_SHOWN;
  return html`
    ${answer.message && html`<p class="banner warning" role="status">${plain(answer.message)}</p>`}
    ${rows.length > 0 && html`<${SearchField}
      label="Search these topics and channels" query=${query} found=${found.length} total=${rows.length}
    />`}
    <${Table}
      caption="Topics that no nsqd has" captionHidden columns=${columns} rows=${found.slice(0, MOST_SHOWN)}
      rowKey=${(row) => row.topic}
      empty=${rows.length ? NOT_FOUND : NONE_IDLE}
    />
    ${more > 0 && html`<p class="muted">${counted(more, "more topic")} can be searched for.</p>`}
  `;
}

function rowsOf({ topics }) {
  const rows = Object.entries(topics).map(([topic, channels]) => ({ topic, channels: channels ?? [] }));
  return sorted(rows, "topic", "asc");
}

function columnsOf(reload) {
  const actions = ({ topic, channels }) => html`<${ActionButton}
    order=${{ action: "delete", topic }} label="Delete topic" kind="danger"
    confirm=${() => topicQuestion(topic, channels)} onDone=${reload}
  />`;
  return [
    { key: "topic", title: "Topic" },
    {
      key: "channels", title: "Channels", wide: true,
      cell: (row) => html`<${Channels} row=${row} reload=${reload} />`,
    },
    { key: "actions", title: "Actions", cell: actions },
  ];
}

function Channels({ row: { topic, channels }, reload }) {
  if (!channels.length) return html`<span class="muted">none</span>`;
  return html`
    <ul class="names">
      ${channels.map((channel) => html`
        <li key=${channel}>
          ${name(channel)}${" "}
          <${ActionButton}
            order=${{ action: "delete", topic, channel }} kind="danger small"
            confirm=${() => channelQuestion(topic, channel)} onDone=${reload}
            label=${html`Delete<span class="visually-hidden"> the channel ${plain(channel)} of ${plain(topic)}</span>`}
          />
        </li>
      `)}
    </ul>
  `;
}

/** Where some nsqd has got the topic in the meantime, what is lost is what that has. */
async function isStillIdle(topic) {
  return Object.hasOwn((await get("/lookup")).topics, topic);
}

async function topicQuestion(topic, channels) {
  if (!(await isStillIdle(topic))) return deleteTopic(topic);
  const names = `the names of ${counted(channels.length, "channel")}, which a new topic would get at once: `;
  return {
    title: `Delete the topic ${topic}?`,
    text: "No nsqd has it, so no message is lost. nsqlookupds forget its name; a publisher creates it again.",
    loses: channels.length ? [names + channels.join(", ")] : [],
    button: "Delete topic",
  };
}

async function channelQuestion(topic, channel) {
  if (!(await isStillIdle(topic))) return deleteChannel(topic, channel);
  return {
    title: `Delete the channel ${channel}?`,
    text: `No nsqd has the topic ${topic}, so no message is lost. But an nsqd that gets the topic will not make this ` +
      "channel any more: it comes with its first consumer, and what is published before may not wait for it.",
    button: "Delete channel",
  };
}

// ---- new ones

function Create({ where, onDone }) {
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    const { topic, channel } = Object.fromEntries(new FormData(form));
    setBusy(true);
    if (await perform({ action: "create", topic: topic.trim(), channel: channel.trim() })) form.reset();
    setBusy(false);
    onDone?.();
  };
  return html`
    <section class="section" aria-labelledby="create">
      <h2 id="create">Create a topic or a channel</h2>
      <p class="muted">${where}, in advance: the first message then finds its channels.</p>
      <form class="form-row" onSubmit=${submit} aria-describedby="name-help">
        <${FormField} ...${TOPIC} help="" />
        <${FormField} ...${FIRST_CHANNEL} />
        <button class="button primary" disabled=${isBusy || Boolean(whyNot())} title=${whyNot()}>Create</button>
      </form>
      <p class="help" id="name-help">${TOPIC.help}</p>
    </section>
  `;
}
