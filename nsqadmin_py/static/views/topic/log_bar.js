// The files of a log over time: how much of each is needed, and how much is only retained.

import { bytes, count, timeText } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { blocksOf } from "./log_sums.js";

const WIDTH = 1000;
const HEIGHT = 40;
const LEAST_WIDTH = 0.004;

/**
 * @param {{files: object[], extent: {fromNs: number, untilNs: number} | null, label: string}} props  the table of the
 *   files says the same in metrics
 */
export function LogBar({ files, extent, label }) {
  if (!extent) return null;
  return html`
    <figure class="timeline">
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${label}>
        ${blocksOf(files, extent, LEAST_WIDTH).map((block) => html`<${Block} key=${block.file.name} ...${block} />`)}
      </svg>
      <figcaption>
        <span>${timeText(extent.fromNs)}</span><span>${timeText(extent.untilNs)}</span>
      </figcaption>
    </figure>
  `;
}

function Block({ file, x, width, needed }) {
  const height = needed * HEIGHT;
  const extent = { x: x * WIDTH, width: width * WIDTH };
  return html`
    <g>
      <title>${describe(file)}</title>
      <rect class=${file.sparse ? "sparse" : "kept"} ...${extent} y="0" height=${HEIGHT} />
      <rect class="needed" ...${extent} y=${HEIGHT - height} height=${height} />
    </g>
  `;
}

function describe(file) {
  const kind = file.sparse ? ", sparse" : "";
  const times = `${timeText(file.first_timestamp)} to ${timeText(file.last_timestamp ?? file.first_timestamp)}`;
  const counts = `${count(file.message_count)} kept, ${count(file.live_count)} not finished, ${bytes(file.bytes)}`;
  return `${file.name}${kind}\n${times}\n${counts}`;
}
