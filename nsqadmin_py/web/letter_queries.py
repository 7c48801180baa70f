"""The list of dead letters: what waits in a topic, by its numbers in the log, and where it came from."""

from __future__ import annotations

from functools import partial
from time import monotonic

import gevent
from werkzeug.wrappers import Request, Response

from nsqadmin_py.messages.filters import MessageFilter
from nsqadmin_py.messages.log_search import LogSearch
from nsqadmin_py.web.access import Access
from nsqadmin_py.web.answers import as_json
from nsqadmin_py.web.letter_actions import live_ranges
from nsqadmin_py.web.message_queries import READ_BYTES, read_log, with_bad_logs
from nsqadmin_py.web.node_queries import answer_of_each, ask_nodes
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.upstream import Upstream, UpstreamError
from nsqd_py.cluster.values import Figures, rows_in, text_in
from nsqd_py.runtime.threads import in_thread

# The latest letters of each nsqd that are listed, and the time for reading them.
_MOST_LISTED = 100
_LONGEST_S = 3.0
_BODY = ("body", "body_base64", "is_cut")


class LetterQueries:
    """Answers /topics/T/dead-letters."""

    def __init__(self, cluster: Cluster, upstream: Upstream, access: Access) -> None:
        self._cluster = cluster
        self._upstream = upstream
        self._access = access

    def dead_letters(self, request: Request, topic: str) -> Response:
        """Return the latest messages that wait in a topic, and the origin of those that nsqds remember.

        Those from topics that the user does not see are left out. An nsqd without a log that it shows has only what it
        remembers.
        """
        sees = self._access.scope(request).sees
        late_s = monotonic() + _LONGEST_S
        addresses = ask_nodes(self._cluster, topic, "", request.args.get("node", ""))
        nodes = answer_of_each(self._cluster, addresses, with_bad_logs(lambda address: self._letters(address, topic, late_s)))
        for node in nodes:
            letters = node.pop("answer", {}).get("letters", [])
            node["dead_letters"] = [one for one in letters if not one.get("topic") or sees(text_in(one, "topic"))]
        return as_json({"nodes": nodes})

    def _letters(self, address: str, topic: str, late_s: float) -> Figures:
        """Raises UpstreamError and BadLog."""
        names = {"format": "json", "topic": topic, "include_clients": "false"}
        topics = rows_in(self._upstream.get(address, "/stats", names), "topics")
        remembered = [letter for row in topics for letter in rows_in(row, "dead_letters")]
        try:
            live = live_ranges(self._upstream.get(address, "/topic/log", {"topic": topic, "live": "1"}))
        except UpstreamError:  # an ephemeral topic, or Go's nsqd
            live = None
        if live is None:
            return {"letters": remembered}
        by_id = {letter.get("id"): letter for letter in remembered}
        letters = []
        for row in self._waiting(address, topic, live, late_s):
            origin = by_id.get(row["id"], {})
            letters.append(row | {name: origin.get(name) for name in ("topic", "channel", "attempts", "died")})
        return {"letters": letters}

    def _waiting(self, address: str, topic: str, live: list[tuple[int, int]], late_s: float) -> list[Figures]:
        """Return the messages with the highest numbers in these ranges. Raises UpstreamError and BadLog."""
        read = partial(read_log, self._upstream, address, topic, READ_BYTES)
        run_in_thread = partial(in_thread, gevent.get_hub().threadpool)
        rows: list[Figures] = []

        def is_late() -> bool:
            return monotonic() > late_s

        for low, high in reversed(live):
            seq, found = max(low, high - _MOST_LISTED + len(rows)), list[Figures]()
            while seq < high and not is_late():  # large messages fill several pages
                search = LogSearch(MessageFilter(), _MOST_LISTED, is_late, high)
                page = search.run(read, {"seq": str(seq)}, run_in_thread)
                found += [{name: row[name] for name in row if name not in _BODY} for row in page.rows]
                if page.next_seq <= seq:
                    break
                seq = page.next_seq
            rows = found + rows
        return rows
