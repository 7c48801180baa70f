"""Messages of a channel and of the log of a topic; dead letters: where they came from, and actions on one or on all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import gevent
from gevent.lock import BoundedSemaphore
from werkzeug.wrappers import Request, Response

from nsqadmin_py.messages.filters import BadFilter, MessageFilter
from nsqadmin_py.messages.log_search import BadLog, LogSearch, body_of, first_seq_of, message_at, search_back, shown
from nsqadmin_py.web.answers import Refusal, as_json, number_of, text_of
from nsqadmin_py.web.app import Services
from nsqadmin_py.web.node_queries import answer_of_each, ask_each, ask_nodes, is_missing_path, reason_of
from nsqd_py.cluster.upstream import Upstream, UpstreamError, ask_all
from nsqd_py.cluster.values import Statistics, rows_in, text_in
from nsqd_py.protocol.names import is_valid_name
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

    def _peek(self, request: Request, topic: str, channel: str, count: int) -> list[Statistics]:
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

        def search(address: str) -> Statistics:
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

    def searched(address: str) -> Statistics:
        try:
            found: Statistics = search(address)
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


def _matching(rows: list[Mapping[str, Any]], wanted: MessageFilter) -> list[Statistics]:
    """Return the wanted messages of an answer to /channel/peek as the page gets them."""
    found: list[Statistics] = []

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

    def _letters(self, address: str, topic: str, late_s: float) -> Statistics:
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

    def _waiting(self, address: str, topic: str, live: list[tuple[int, int]], late_s: float) -> list[Statistics]:
        """Return the messages with the highest numbers in these ranges. Raises UpstreamError and BadLog."""
        read = partial(read_log, self._upstream, address, topic, READ_BYTES)
        run_in_thread = partial(in_thread, gevent.get_hub().threadpool)
        rows: list[Statistics] = []

        def is_late() -> bool:
            return monotonic() > late_s

        for low, high in reversed(live):
            seq, found = max(low, high - _MOST_LISTED + len(rows)), list[Statistics]()
            while seq < high and not is_late():  # large messages fill several pages
                search = LogSearch(MessageFilter(), _MOST_LISTED, is_late, high)
                page = search.run(read, {"seq": str(seq)}, run_in_thread)
                found += [{name: row[name] for name in row if name not in _BODY} for row in page.messages]
                if page.next_seq <= seq:
                    break
                seq = page.next_seq
            rows = found + rows
        return rows
