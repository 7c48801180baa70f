// The views of a topic.

import { short } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths } from "../../lib/route.js";

const TABS = [
  ["overview", "Overview", paths.topic],
  ["messages", "Messages", paths.messages],
  ["log", "Log", paths.log],
  ["dead", "Dead letters", paths.deadLetters],
];

/** @param {{topic: string, current: "overview" | "messages" | "log" | "dead"}} props */
export function TopicTabs({ topic, current }) {
  const { head } = useLive("topic", { topic });
  return html`<nav class="segments" aria-label="Views of the topic">
    ${TABS.map(([key, title, href]) => html`
      <a key=${key} class="segment" href=${href(topic)} aria-current=${key === current ? "page" : undefined}>
        ${title}${key === "dead" && head?.dead_letters > 0 && ` (${short(head.dead_letters)})`}</a>
    `)}
  </nav>`;
}
