"""Messages: those of a channel that are queued, in flight or deferred, and all that the log of a topic has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore
from werkzeug.wrappers import Request, Response

from nsqadmin_py.messages.filters import BadFilter, MessageFilter
from nsqadmin_py.messages.log_search import BadLog, LogSearch, body_of, first_seq_of, message_at, search_back, shown
from nsqadmin_py.web.answers import Refusal, as_json, number_of
from nsqadmin_py.web.app import Services
from nsqadmin_py.web.node_queries import answer_of_each, ask_each, ask_nodes
from nsqd_py.cluster.upstream import Upstream, UpstreamError
from nsqd_py.cluster.values import Figures, rows_in
from nsqd_py.runtime.threads import in_thread

_MOST_MESSAGES = 1000
_DEFAULT_MESSAGES = 10
_DEFAULT_LISTED = 50
_HIGHEST_SEQ = 10**12 - 1
# A search ends after this time, wherever it is; the page goes on from there.
_SEARCH_S = 3.0
# Of all requests together. Each search uses a thread and memory for one read.
_SEARCHES = 4
READ_BYTES = 1024 * 1024
# A message is read with its record, which has at least one message.
_ONE_RECORD_BYTES = 1
_LATEST = "latest"
_UNSAFE = re.compile(r"\W")


class MessageQueries:
    def __init__(self, services: Services) -> None:
        self._cluster = services.cluster
        self._upstream = services.upstream
        self._searches = BoundedSemaphore(_SEARCHES)

    # ---- of a channel

    def peek(self, request: Request, topic: str, channel: str) -> Response:
        """Return messages of each nsqd that are in one state; queued ones in the order of their delivery."""
        wanted = _filter_of(request)
        count = number_of(request.args, "n", _DEFAULT_MESSAGES, _MOST_MESSAGES)
        nodes = self._peek(request, topic, channel, count)
        for node in nodes:
            answer = node.get("answer")
            if answer is not None:
                rows = rows_in(answer, "messages")[:count]
                answer["searched_count"] = len(rows)
                answer["messages"] = _matching(rows, wanted)
        return as_json({"nodes": nodes})

    def queued_body(self, request: Request, topic: str, channel: str, message: str) -> Response:
        """Return the whole body of a message of a channel as a download: by `seq`, or by the query of its peek."""
        count = number_of(request.args, "n", _MOST_MESSAGES, _MOST_MESSAGES)
        _check_node(request)
        (found,) = self._peek(request, topic, channel, count)
        if "error" in found:
            raise Refusal(502, f"UPSTREAM_ERROR: {found['error']}")
        for row in rows_in(found["answer"], "messages"):
            if row.get("id") == message:
                return _download(body_of(row), message)
        raise Refusal(404, "MESSAGE_NOT_FOUND")

    def _peek(self, request: Request, topic: str, channel: str, count: int) -> list[Figures]:
        addresses = ask_nodes(self._cluster, topic, channel, request.args.get("node", ""))
        names = {"topic": topic, "channel": channel, "n": str(count)}
        names |= {name: request.args[name] for name in ("state", "seq") if request.args.get(name)}
        return ask_each(self._cluster, self._upstream, addresses, "/channel/peek", names)

    # ---- of a topic's log

    def log(self, request: Request, topic: str) -> Response:
        """Return messages that the log of each nsqd has.

        The first ones from the number `seq` or the place `from` on, or the last ones before the number `before` or the
        place `until`. A place is a time, `earliest` or `latest`; `from=latest` is the same as `until=latest`.
        """
        wanted = _filter_of(request)
        limit = max(1, number_of(request.args, "limit", _DEFAULT_LISTED, _MOST_MESSAGES))
        start, end = _range_of(request)
        addresses = ask_nodes(self._cluster, topic, "", request.args.get("node", ""))
        late_s = monotonic() + _SEARCH_S
        run_in_thread = partial(in_thread, gevent.get_hub().threadpool)

        def is_late() -> bool:
            return monotonic() > late_s

        def search(address: str) -> Figures:
            read = partial(read_log, self._upstream, address, topic, READ_BYTES)
            with self._searches:
                if start is not None:
                    return vars(LogSearch(wanted, limit, is_late).run(read, start, run_in_thread))
                before = end if isinstance(end, int) else first_seq_of(read(end))
                return vars(search_back(wanted, limit, is_late, read, before, run_in_thread))

        return as_json({"nodes": answer_of_each(self._cluster, addresses, with_bad_logs(search))})

    def body(self, request: Request, topic: str, seq: str) -> Response:
        """Return the whole body of a message of the log as a download."""
        if not seq.isdecimal() or len(seq) > len(str(_HIGHEST_SEQ)):
            raise Refusal(400, "INVALID_ARG_SEQ")
        _check_node(request)
        (address,) = ask_nodes(self._cluster, topic, "", request.args["node"])
        try:
            found = one_message(self._upstream, address, topic, int(seq))
        except (UpstreamError, BadLog) as error:
            raise Refusal(502, f"UPSTREAM_ERROR: {error}") from error
        if found is None:
            raise Refusal(404, "MESSAGE_NOT_FOUND")
        return _download(found[1], seq)


def read_log(upstream: Upstream, address: str, topic: str, most_bytes: int, place: dict[str, str]) -> bytes:
    """Return records of the log of a topic. Raises UpstreamError."""
    query = {"topic": topic, "max_bytes": str(most_bytes), **place}
    with upstream.answer() as answer:
        return upstream.get_bytes(answer, address, "/topic/read", query)


def one_message(upstream: Upstream, address: str, topic: str, seq: int) -> tuple[str, bytes] | None:
    """Return the id and the body of a message of the log; None if it is not there. Raises UpstreamError and BadLog."""
    return message_at(read_log(upstream, address, topic, _ONE_RECORD_BYTES, {"seq": str(seq)}), seq)


def with_bad_logs(search: Any) -> Any:
    """Return the function, with its error for an answer that is no log as an error of the nsqd."""

    def searched(address: str) -> Figures:
        try:
            found: Figures = search(address)
        except BadLog as error:
            raise UpstreamError(str(error)) from error
        return found

    return searched


def _range_of(request: Request) -> tuple[dict[str, str] | None, int | dict[str, str]]:
    """Return where a search begins, in words of /topic/read; or None, and where a search backwards begins.

    Raises Refusal.
    """
    names = request.args
    if names.get("before"):
        return None, number_of(names, "before", 0, _HIGHEST_SEQ)
    if names.get("seq"):
        return {"seq": str(number_of(names, "seq", 0, _HIGHEST_SEQ))}, 0
    if names.get("until") or names.get("from") == _LATEST:
        return None, {"time": names.get("until") or _LATEST}
    return {"time": names.get("from") or "earliest"}, 0


def _filter_of(request: Request) -> MessageFilter:
    try:
        return MessageFilter(*(request.args.get(name, "") for name in ("text", "regex", "path")))
    except BadFilter as error:
        raise Refusal(400, f"INVALID_ARG_{error.name.upper()}", reason=str(error)) from error


def _matching(rows: list[Mapping[str, Any]], wanted: MessageFilter) -> list[Figures]:
    """Return the wanted messages of an answer to /channel/peek as the page gets them."""
    found: list[Figures] = []

    def match() -> None:
        for row in rows:
            body = body_of(row)
            if wanted.matches(body):
                found.append(shown(row, body))

    in_thread(gevent.get_hub().threadpool, match)
    return found


def _check_node(request: Request) -> None:
    if not request.args.get("node"):
        raise Refusal(400, "MISSING_ARG_NODE")


def _download(body: bytes, name: str) -> Response:
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f'attachment; filename="message-{_UNSAFE.sub("", name)}"',
        "Cache-Control": "no-store",
    }
    return Response(body, 200, headers)
