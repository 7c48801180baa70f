"""Messages of a channel and of the log of a topic; dead letters and their origin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore
from werkzeug.wrappers import Request, Response

from nsqadmin_py.messages.filters import MessageFilter
from nsqadmin_py.messages.json_path import BadFilter
from nsqadmin_py.messages.log_search import (
    LogSearch,
    LogSource,
    body_at,
    body_of,
    first_seq_of,
    search_back,
    shown,
)
from nsqadmin_py.refusals import NotThere, Query, RequestRefused, number_of
from nsqadmin_py.web.answers import uncached, upstream_failed
from nsqadmin_py.web.app import Handlers
from nsqadmin_py.web.node_queries import answer_of_each, ask_each, ask_nodes
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.upstream import Upstream
from nsqd_py.cluster.values import Statistics, rows_in, text_in, value_in
from nsqd_py.runtime.threads import in_thread

_MOST_MESSAGES = 1000
_DEFAULT_MESSAGES = 10
_DEFAULT_LISTED = 50
_HIGHEST_SEQ = 10**12 - 1
# A search ends after this time, wherever it is; the page goes on from there.
_SEARCH_S = 3.0
# Of all requests together. Each search uses a thread and memory for one read.
_SEARCHES = 4
_READ_BYTES = 1024 * 1024
# A message is read with its record, which has at least one message.
_ONE_RECORD_BYTES = 1
_LATEST = "latest"
_UNSAFE = re.compile(r"\W")
# The latest dead letters of each nsqd that are listed.
_MOST_LETTERS = 100
# Of each, the beginning of its body: a multiple of 4, as base64 needs.
_PREVIEWED = 200
_BODY = ("body", "body_base64")


@dataclass(frozen=True)
class MessageQueries(Handlers):
    """Handlers of the paths of messages."""

    searches: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(_SEARCHES))

    # ---- of a channel

    def peek(self, request: Request, topic: str, channel: str) -> Statistics:
        """Return messages of each nsqd that are in one state; queued ones in the order of their delivery."""
        message_filter = _filter_of(request)
        count = number_of(request.args, "n", _DEFAULT_MESSAGES, _MOST_MESSAGES)
        nodes = self._peek(request, topic, channel, count)
        for node in nodes:
            answer = node.get("answer")
            if answer is not None:
                rows = rows_in(answer, "messages")[:count]
                answer["searched_count"] = len(rows)
                answer["messages"] = _matching(rows, message_filter)
        return {"nodes": nodes}

    def queued_body(self, request: Request, topic: str, channel: str, message: str) -> Response:
        """Return the body of a message of a channel as a download: by `seq`, or by the query of its peek."""
        count = number_of(request.args, "n", _MOST_MESSAGES, _MOST_MESSAGES)
        _check_node(request)
        (found,) = self._peek(request, topic, channel, count)
        if "error" in found:
            raise upstream_failed(found["error"])
        for row in rows_in(found["answer"], "messages"):
            if row.get("id") == message:
                return _download(body_of(row), message)
        raise NotThere("MESSAGE_NOT_FOUND")

    def _peek(self, request: Request, topic: str, channel: str, count: int) -> list[Statistics]:
        addresses = ask_nodes(self.cluster, topic, channel, request.args.get("node", ""))
        names = {"topic": topic, "channel": channel, "n": str(count)}
        for name in ("state", "seq"):
            text = request.args.get(name)
            if text:
                names[name] = text
        return ask_each(self.cluster, self.upstream, addresses, "/channel/peek", names)

    # ---- of a topic's log

    def in_log(self, request: Request, topic: str) -> Statistics:
        """Return messages that the log of each nsqd has.

        The first ones from the number `seq` or the position `from` on, or the last ones before the number
        `before` or the position `until`. A position is a time, `earliest` or `latest`; `from=latest` is the same as
        `until=latest`.
        """
        message_filter = _filter_of(request)
        limit = max(1, number_of(request.args, "limit", _DEFAULT_LISTED, _MOST_MESSAGES))
        start, end = _range_of(request.args)
        addresses = ask_nodes(self.cluster, topic, "", request.args.get("node", ""))
        late_s = monotonic() + _SEARCH_S

        def search(address: str) -> Statistics:
            source = self._source(address, topic, late_s)
            with self.searches:
                if start is not None:
                    return vars(LogSearch(source, message_filter, limit).run(start))
                if isinstance(end, int):
                    before = end
                else:
                    before = first_seq_of(source.read(end))
                return vars(search_back(source, message_filter, limit, before))

        return {"nodes": answer_of_each(self.cluster, addresses, search)}

    def _source(self, address: str, topic: str, late_s: float) -> LogSource:
        read = partial(_read_log, self.upstream, address, topic, _READ_BYTES)
        run = partial(in_thread, gevent.get_hub().threadpool)
        return LogSource(read, lambda: monotonic() > late_s, run)

    def body(self, request: Request, topic: str, seq: str) -> Response:
        """Return the whole body of a message of the log as a download."""
        if not seq.isdecimal() or len(seq) > len(str(_HIGHEST_SEQ)):
            raise RequestRefused(400, "INVALID_ARG_SEQ")
        _check_node(request)
        (address,) = ask_nodes(self.cluster, topic, "", request.args["node"])
        records = _read_log(self.upstream, address, topic, _ONE_RECORD_BYTES, {"seq": seq})
        found = body_at(records, int(seq))
        if found is None:
            raise NotThere("MESSAGE_NOT_FOUND")
        return _download(found, seq)

    # ---- dead letters

    def dead_letters(self, request: Request, topic: str) -> Statistics:
        """Return the latest messages that wait in a topic, and the origin of those that nsqds remember.

        Those from topics that the user does not see are left out. An nsqd without a log that it shows has
        only what it remembers.
        """
        sees = self.access.scope(request).sees
        late_s = monotonic() + _SEARCH_S
        addresses = ask_nodes(self.cluster, topic, "", request.args.get("node", ""))
        nodes = answer_of_each(self.cluster, addresses, lambda address: self._letters(address, topic, late_s))
        for node in nodes:
            letters = node.pop("answer", {}).get("letters", [])
            node["dead_letters"] = [
                one for one in letters if not one.get("topic") or sees(text_in(one, "topic"))
            ]
        return {"nodes": nodes}

    def _letters(self, address: str, topic: str, late_s: float) -> Statistics:
        """Raises UpstreamError."""
        names = {"format": "json", "topic": topic, "include_clients": "false"}
        topics = rows_in(self.upstream.get(address, "/stats", names), "topics")
        remembered = [letter for row in topics for letter in rows_in(row, "dead_letters")]
        try:
            live = live_ranges(self.upstream.get(address, "/topic/log", {"topic": topic, "live": "1"}))
        except UpstreamError:  # an ephemeral topic, or Go's nsqd
            live = None
        if live is None:
            return {"letters": remembered}
        by_id = {letter.get("id"): letter for letter in remembered}
        letters = []
        for row in _latest(self._source(address, topic, late_s), live):
            origin = by_id.get(row["id"], {})
            letters.append(
                row | {name: origin.get(name) for name in ("topic", "channel", "attempts", "died")}
            )
        return {"letters": letters}


def _read_log(
    upstream: Upstream, address: str, topic: str, most_bytes: int, position: dict[str, str]
) -> bytes:
    """Return records of the log of a topic. Raises UpstreamError."""
    query = {"topic": topic, "max_bytes": str(most_bytes), **position}
    with upstream.answer() as answer:
        return upstream.get_bytes(answer, address, "/topic/read", query)


def _range_of(query: Query) -> tuple[dict[str, str] | None, int | dict[str, str]]:
    """Return where a search begins, in words of /topic/read; or None, and where a search backwards begins.

    Raises RequestRefused.
    """
    if query.get("before"):
        return None, number_of(query, "before", 0, _HIGHEST_SEQ)
    if query.get("seq"):
        return {"seq": str(number_of(query, "seq", 0, _HIGHEST_SEQ))}, 0
    if query.get("until") or query.get("from") == _LATEST:
        return None, {"time": query.get("until") or _LATEST}
    return {"time": query.get("from") or "earliest"}, 0


def _filter_of(request: Request) -> MessageFilter:
    try:
        words = (request.args.get(name, "") for name in ("text", "regex", "path"))
        return MessageFilter(*words)
    except BadFilter as error:
        raise RequestRefused(400, f"INVALID_ARG_{error.name.upper()}", reason=str(error)) from error


def _matching(rows: list[Mapping[str, Any]], message_filter: MessageFilter) -> list[Statistics]:
    """Return the requested messages of an answer to /channel/peek as the page gets them."""
    found: list[Statistics] = []

    def match() -> None:
        for row in rows:
            body = body_of(row)
            if message_filter.matches(body):
                found.append(shown(row, body))

    in_thread(gevent.get_hub().threadpool, match)
    return found


def _check_node(request: Request) -> None:
    if not request.args.get("node"):
        raise RequestRefused(400, "MISSING_ARG_NODE")


def _download(body: bytes, name: str) -> Response:
    response = uncached(body, "application/octet-stream")
    response.headers["Content-Disposition"] = f'attachment; filename="message-{_UNSAFE.sub("", name)}"'
    return response


def live_ranges(answer: Any) -> list[tuple[int, int]] | None:
    """Return the numbers that wait, of an answer to /topic/log; None if the nsqd does not report them."""
    found = value_in(answer, "live")
    if not isinstance(found, list):
        return None
    ranges = []
    for run in found:
        if isinstance(run, list) and list(map(type, run)) == [int, int]:
            low, high = run
            if 0 <= low < high:
                ranges.append((low, high))
    return ranges


def _latest(source: LogSource, live: list[tuple[int, int]]) -> list[Statistics]:
    """Return the messages with the highest numbers in these ranges, with the beginnings of bodies.

    Raises UpstreamError.
    """
    rows: list[Statistics] = []
    for low, high in reversed(live):
        seq = max(low, high - _MOST_LETTERS + len(rows))
        found: list[Statistics] = []
        while seq < high and not source.is_late():  # large messages fill several pages
            search = LogSearch(source, MessageFilter(), _MOST_LETTERS, high)
            page = search.run({"seq": str(seq)})
            found += map(_previewed, page.messages)
            if page.next_seq <= seq:
                break
            seq = page.next_seq
        rows = found + rows
    return rows


def _previewed(row: Statistics) -> Statistics:
    return row | {name: row[name][:_PREVIEWED] for name in _BODY if name in row}
