"""Dead letters: the list of what waits in a topic and where it came from, and actions on one or on all.

An action concerns the messages of one channel, since nsqd keeps for each channel what is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import gevent
from werkzeug.wrappers import Request, Response

from nsqadmin_py.messages.filters import MessageFilter
from nsqadmin_py.messages.log_search import LogSearch, body_of
from nsqadmin_py.web.answers import Refusal, as_json, text_of
from nsqadmin_py.web.app import Services
from nsqadmin_py.web.message_queries import READ_BYTES, read_log, with_bad_logs
from nsqadmin_py.web.node_queries import answer_of_each, ask_nodes, is_missing_path, reason_of
from nsqd_py.cluster.upstream import Upstream, UpstreamError, ask_all
from nsqd_py.cluster.values import Figures, rows_in, text_in
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.threads import in_thread

Result = dict[str, Any]


class DeadLetter(NamedTuple):
    """A message that waits in a channel on one nsqd. Its number distinguishes it from others with the same id."""

    node: str
    topic: str
    channel: str
    seq: int
    message_id: str


def requeue(upstream: Upstream, letter: DeadLetter, target: str) -> Result:
    """Publish the message to `target` on its nsqd, then finish it. Raises Refusal.

    If nsqadmin ends in between, it may come twice; it is never lost.
    """
    if not is_valid_name(target.encode()):
        raise Refusal(400, "INVALID_TOPIC")
    if target == letter.topic:
        raise Refusal(400, "INVALID_ARG_TARGET")
    body = _asked(lambda: _body(upstream, letter))
    _asked(lambda: upstream.post(letter.node, "/pub", {"topic": target}, body))
    try:
        _finish(upstream, letter)
    except UpstreamError as error:
        text = f"{letter.node}: {target} has the message, but it stays in {letter.topic}: {reason_of(error)}"
        return {"errors": [text], "node": letter.node}
    return {"errors": [], "node": letter.node}


def requeue_all(upstream: Upstream, addresses: list[str], source: tuple[str, str], target: str, limit: int) -> Result:
    """Publish at most `limit` messages that wait in a channel to `target`, on the nsqd that has each, and finish them.

    It ends after _REQUEUE_S. If nsqadmin ends in between, up to _MOVED_AT_ONCE messages of each nsqd may come twice;
    none is lost. Raises Refusal if none was moved and an nsqd failed.
    """
    topic, channel = source
    end_s = monotonic() + _REQUEUE_S
    moved, errors = 0, []

    def move(address: str, rows: Mapping[str, Mapping[str, Any]], seq: str) -> None:
        names = {"topic": topic, "channel": channel, "seq": seq, "id": text_in(rows[seq], "id")}
        upstream.post(address, "/pub", {"topic": target}, body_of(rows[seq]))
        try:
            upstream.post(address, "/channel/finish", names)
        except UpstreamError as error:
            if error.message != "MESSAGE_NOT_QUEUED":  # a consumer of the channel has received it too
                raise

    for address in addresses:
        try:
            upstream.post(address, "/channel/create", {"topic": topic, "channel": channel})  # a new one gets what waits
            while moved < limit and monotonic() < end_s:
                query = {"topic": topic, "channel": channel, "n": str(min(limit - moved, _MOVED_AT_ONCE))}
                by_seq = {str(row.get("seq")): row for row in rows_in(upstream.get(address, "/channel/peek", query), "messages")}
                done = ask_all(by_seq, partial(move, address, by_seq))
                moved += len(done.good)
                if done.errors:
                    raise done.errors[0]
                if not by_seq:
                    break
        except UpstreamError as error:
            errors.append(f"{address}: {reason_of(error)}")
    if errors and not moved:
        raise Refusal(502, f"UPSTREAM_ERROR: {'; '.join(errors)}")
    return {"errors": errors, "requeued": moved}


def discard(upstream: Upstream, letter: DeadLetter) -> Result:
    """Finish the message. Raises Refusal."""
    _asked(lambda: _finish(upstream, letter))
    return {"errors": [], "node": letter.node}


def dead_letter_of(document: Mapping[str, Any], node: str, topic: str, channel: str) -> DeadLetter:
    """Return the message that an action names. Raises Refusal."""
    seq = document.get("seq")
    if type(seq) is not int or seq < 0:
        raise Refusal(400, "INVALID_ARG_SEQ")
    message_id = text_of(dict(document), "message")
    if not message_id:
        raise Refusal(400, "MISSING_ARG_MESSAGE")
    if not node:
        raise Refusal(400, "MISSING_ARG_NODE")
    return DeadLetter(node, topic, channel, seq, message_id)


def live_ranges(answer: Any) -> list[tuple[int, int]] | None:
    """Return the numbers that wait, of an answer to /topic/log; None if the nsqd does not report them."""
    found = answer.get("live") if isinstance(answer, Mapping) else None
    if not isinstance(found, list):
        return None
    runs = [run for run in found if isinstance(run, list) and len(run) == 2]
    return [(low, high) for low, high in runs if type(low) is int and type(high) is int and 0 <= low < high]


def _body(upstream: Upstream, letter: DeadLetter) -> bytes:
    """Raises UpstreamError, Refusal."""
    query = {"topic": letter.topic, "channel": letter.channel, "seq": str(letter.seq)}
    for row in rows_in(upstream.get(letter.node, "/channel/peek", query), "messages"):
        if row.get("id") == letter.message_id and row.get("seq") == letter.seq:
            return body_of(row)
    raise Refusal(404, "MESSAGE_NOT_QUEUED")


def _finish(upstream: Upstream, letter: DeadLetter) -> None:
    """Raises UpstreamError."""
    names = {"topic": letter.topic, "channel": letter.channel, "seq": str(letter.seq), "id": letter.message_id}
    upstream.post(letter.node, "/channel/finish", names)


def _asked(ask: Callable[[], Any]) -> Any:
    """Return what `ask` returns. Raises Refusal."""
    try:
        return ask()
    except UpstreamError as error:
        if error.status == 404 and not is_missing_path(error):
            raise Refusal(404, error.message or "NOT_FOUND") from error
        raise Refusal(502, f"UPSTREAM_ERROR: {reason_of(error)}") from error


# The latest letters of each nsqd that are listed, and the time for reading them.
_MOST_LISTED = 100
_LONGEST_S = 3.0
# Messages of one nsqd that are requeued at the same time, and the time for requeueing all.
_MOVED_AT_ONCE = 50
_REQUEUE_S = 30.0
_BODY = ("body", "body_base64", "is_cut")


class DeadLetterQueries:
    """Answers /topics/T/dead-letters."""

    def __init__(self, services: Services) -> None:
        self._cluster = services.cluster
        self._upstream = services.upstream
        self._access = services.access

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
                found += [{name: row[name] for name in row if name not in _BODY} for row in page.messages]
                if page.next_seq <= seq:
                    break
                seq = page.next_seq
            rows = found + rows
        return rows
