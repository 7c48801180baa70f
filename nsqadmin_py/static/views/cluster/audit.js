// Who did what through this nsqadmin, when, from where, on what, and with what result; the newest first.

import { get } from "../../lib/api.js";
import { count, name, plain, time } from "../../lib/format.js";
import { html } from "../../lib/html.js";
import { paths, setQuery, useTitle } from "../../lib/route.js";
import { Badge, Failed, Loading } from "../../parts/state.js";
import { Pager, Table } from "../../parts/table.js";
import { counted } from "../shared/lost_messages.js";
import { usePolled } from "../shared/polling.js";
import { SearchField } from "../shared/rows.js";

const PAGE_ROWS = 50;
const MOST_PAGES = 1000;
const ASKED_EVERY_MS = 5000;

// Of an action that nsqds have not, or not all, done.
const STATES = new Map([["partly", ["warning", "partly done"]], ["failed", ["error", "failed"]]]);

const COLUMNS = [
  { key: "time_s", title: "When", cell: (row) => html`<span class="nowrap">${time(row.time_s)}</span>` },
  { key: "user", title: "Who", cell: userCell },
  { key: "action", title: "Action", cell: (row) => html`<span class="nowrap">${plain(row.action.replaceAll("_", " "))}</span>` },
  { key: "topic", title: "On", wide: true, cell: subjectCell },
  { key: "result", title: "Result", wide: true, cell: resultCell },
  { key: "address", title: "From", cell: (row) => row.address ? name(row.address) : html`<span class="zero">–</span>` },
];

/** @param {{query: Record<string, string>}} props */
export function AuditView({ query }) {
  useTitle("Audit");
  const words = wordsOf(query);
  const { data, message, reload } = usePolled(JSON.stringify(words), () => get("/audit", words), ASKED_EVERY_MS);
  return html`
    <header class="title-row"><h1 tabindex="-1">Audit</h1></header>
    ${message && html`<${Failed} message=${message} retry=${reload} />`}
    ${!data && !message && html`<${Loading} />`}
    ${data && html`<${List} answer=${data} words=${words} query=${query} />`}
  `;
}

/** What the server is asked for. */
function wordsOf(query) {
  const page = Math.max(1, Number.parseInt(query.page, 10) || 1);
  const offset = (Math.min(page, MOST_PAGES) - 1) * PAGE_ROWS;
  return { search: query.search ?? "", only: query.only === "failed" ? "failed" : "", offset, limit: PAGE_ROWS };
}

function List({ answer, words, query }) {
  const lastRow = Math.floor(Math.max(0, answer.total - 1) / PAGE_ROWS) * PAGE_ROWS;
  const goTo = (offset) => setQuery({ page: Math.min(offset, lastRow) / PAGE_ROWS + 1 }, { push: true });
  return html`
    <div class="section">
      <${SearchField} label="Search users, actions and places" query=${query} status=${counted(answer.total, "action")}>
        <label class="nowrap"><input type="checkbox" checked=${words.only === "failed"}
          onChange=${(event) => setQuery({ only: event.target.checked ? "failed" : "", page: "" })} />
          Only failed</label>
      <//>
    </div>
    <${Table} caption="Actions" captionHidden columns=${COLUMNS} rows=${answer.rows} rowKey=${keyOf}
      empty=${words.search || words.only ? "No action matches." : "Nothing was done yet."} />
    <${Pager} total=${answer.total} offset=${words.offset} limit=${PAGE_ROWS} onPage=${goTo} what="actions" />
    <p class="muted">The latest ${count(answer.most)} actions of this nsqadmin are here. Its log has all of them.</p>
  `;
}

function keyOf(row) {
  return JSON.stringify([row.time_s, row.user, row.action, row.topic, row.channel, row.node]);
}

function userCell(row) {
  if (!row.user) return html`<span class="muted">unknown</span>`;
  const title = "No login or trusted proxy proves this name";
  return html`<span>${name(row.user)} ${!row.is_verified && html`<${Badge} title=${title}>not verified<//>`}</span>`;
}

function subjectCell(row) {
  const { target, ...details } = row.details;
  return html`<span>
    ${row.topic && html`<a href=${paths.topic(row.topic)}>${name(row.topic)}</a>`}
    ${row.channel && html` / <a href=${paths.channel(row.topic, row.channel)}>${name(row.channel)}</a>`}
    ${row.node && html` ${row.topic && "on "}<a href=${paths.node(row.node)}>${name(row.node)}</a>`}
    ${target && html` → <a href=${paths.topic(target)}>${name(target)}</a>`}
    ${Object.entries(details).map(([word, value]) => html` <span key=${word} class="muted">${plain(word)} ${name(value)}</span>`)}
  </span>`;
}

function resultCell(row) {
  const [kind, word] = STATES.get(row.state) ?? [];
  return html`<span>${kind && html`<${Badge} kind=${kind}>${word}<//> `}${plain(row.result)}</span>`;
}
