// Topics that nsqlookupds know and no nsqd has: created in advance, or left behind by nsqds that have gone.

import { get, session } from "../../lib/api.js";
import { name } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { paths } from "../../lib/route.js";
import { counted } from "../shared/lost_messages.js";
import { usePolled } from "../shared/polling.js";

const ASKED_EVERY_MS = 15_000;
const MOST_NAMED = 10;

/** @returns {Record<string, string[] | null>} topics with their channels, as far as they are known yet */
export function useIdleTopics() {
  const load = async () => (session().lookupds > 0 ? get("/lookup") : { topics: {} });
  return usePolled("idle", load, ASKED_EVERY_MS).data?.topics ?? {};
}

/** Below the list of topics, which nsqds have. */
export function IdleTopics() {
  const topics = Object.keys(useIdleTopics()).sort();
  if (!topics.length) return null;
  const more = topics.length - MOST_NAMED;
  return html`<section class="section" aria-label="Topics that no nsqd has">
    <p>${counted(topics.length, "topic")} that ${topics.length === 1 ? "is" : "are"} on no nsqd:</p>
    <ul class="names">
      ${topics.slice(0, MOST_NAMED).map((topic) => html`<li key=${topic}>
        <a href=${paths.topic(topic)}>${name(topic)}</a></li>`)}
      ${more > 0 && html`<li><a href=${paths.lookup()}>${counted(more, "more topic")}</a></li>`}
    </ul>
  </section>`;
}
