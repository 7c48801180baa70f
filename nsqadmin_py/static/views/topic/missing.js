// A topic that no nsqd has: it may be known to nsqlookupds, and come with its first message.

import { name, plain } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { ActionBar, ActionButton } from "../../parts/actions.js";
import { useIdleTopics } from "../cluster/idle.js";
import { counted } from "../shared/lost_messages.js";
import { CreateChannel } from "./create.js";

/** @param {{topic: string, onPublish?: () => void}} props */
export function MissingTopic({ topic, onPublish }) {
  const idle = useIdleTopics();
  const channels = Object.hasOwn(idle, topic) ? idle[topic] ?? [] : null;
  return html`<section class="panel empty">
    <h2>${channels ? "Known to nsqlookupd, and on no nsqd" : "No nsqd has this topic"}</h2>
    ${channels ? html`<p>An nsqd gets ${name(topic)} with its first message or its first consumer. ${channelsText(channels)}</p>`
      : html`<p>${name(topic)} does not exist. It appears here when an nsqd gets it.</p>`}
    ${onPublish && html`<${ActionBar} label="What can be done">
      <${ActionButton} label="Publish a message" kind="primary" order=${onPublish}
        of=${{ action: "publish", topic }} />
      ${channels && html`<${CreateChannel} topic=${topic} />`}
    <//>`}
  </section>`;
}

function channelsText(channels) {
  return channels.length ? `It will have ${counted(channels.length, "channel")}: ${channels.map((one) => plain(one)).join(", ")}.`
    : "It has no channel yet.";
}
