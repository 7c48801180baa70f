// The cluster at a glance.

import { count } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { useLive } from "../../lib/live.js";
import { paths } from "../../lib/route.js";
import { Tiles } from "../../parts/tiles.js";
import { ageTile, flowTiles } from "../shared/flow_tiles.js";

export function ClusterTiles() {
  const { head } = useLive("overview");
  return html`<${Tiles} items=${head.nodes === undefined ? [] : itemsOf(head)} label="The cluster" />`;
}

function itemsOf(head) {
  const alert = head.nodes_failed || head.nodes_gone ? "error" : head.nodes_slow > 0;
  return [
    ...flowTiles(head),
    { ...ageTile(head), href: `${paths.channels()}?sort=oldest_age_s&order=desc` },
    {
      label: "nsqds", value: nodesText(head), title: nodesTitle(head), href: paths.nodes(),
      alert, isMinor: !alert,
    },
  ];
}

const STATES = [["nodes_ok", "ok"], ["nodes_slow", "slow"], ["nodes_failed", "failed"], ["nodes_gone", "gone"],
  ["nodes_stopped", "stopped"]];

function nodesText(head) {
  const parts = STATES.filter(([key]) => head[key]).map(([key, word]) => `${count(head[key])} ${word}`);
  return parts.join(" · ") || "none";
}

function nodesTitle(head) {
  return `${count(head.nodes)} known; versions: ${Object.keys(head.versions ?? {}).join(", ")}`;
}
