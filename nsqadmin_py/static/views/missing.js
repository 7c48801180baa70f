// A topic that no nsqd has: it may be known to nsqlookupds, and come with its first message.

import { session } from "../lib/api.js";
import { html } from "../lib/html.js";
import { name } from "../lib/format.js";
import { paths } from "../lib/route.js";
import { ActionBar, ActionButton } from "../parts/actions.js";

/** @param {{topic: string, onPublish: () => void}} props */
export function MissingTopic({ topic, onPublish }) {
  return html`<section class="panel empty">
    <h2>No nsqd has this topic</h2>
    <p>${name(topic)} has not been created yet, or has been deleted. It appears here when an nsqd
      gets it, with its first message or its first consumer.</p>
    ${session().lookupds > 0 && html`<p>
      Topics that only nsqlookupds know are under <a href=${paths.lookup()}>Lookup</a>.
    </p>`}
    <${ActionBar} label="What can be done">
      <${ActionButton} label="Publish a message" kind="primary" order=${onPublish} />
    <//>
  </section>`;
}
