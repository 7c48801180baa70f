"""Server-sent events: the views that pages show, and then their changes, round after round.

One stream holds all views that a page shows: over HTTP/1.1, browsers open only six connections to a host.

The server keeps only what it has sent to a reader. So a slow reader misses rounds but no changes, and the
socket's time-out closes one that reads nothing. A reader that reconnects gets the whole view again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from time import time
from typing import Any
from urllib.parse import parse_qsl

import orjson
from gevent.event import Event
from werkzeug.wrappers import Request, Response

from nsqadmin_py.cluster.metrics import View
from nsqadmin_py.permissions import Scope
from nsqadmin_py.refusals import NotThere, Query, RequestRefused
from nsqadmin_py.web.access import AccessRights, host_of
from nsqadmin_py.web.answers import uncached
from nsqadmin_py.web.views_api import Views, ViewsOfUsers
from nsqd_py.runtime.pacing import Turns

MOST_READERS = 500
# Of one address, or of one user where a login or a trusted proxy names users: others must find room.
MOST_READERS_OF_ONE = 100
MOST_VIEWS = 50  # of a stream
HEARTBEAT_S = 15.0
_RETRY_MS = 2000


class Reader:
    """The state of one view that a page has received."""

    def __init__(self) -> None:
        self._known: View | None = None
        self._is_gone = False

    def news(self, view: View) -> dict[str, Any] | None:
        """Return what to send: the head, changed rows, and the order of rows if that changed.

        None if nothing changed. The first result holds everything, and has `full`.
        """
        is_first = self._known is None
        known = self._known or View({})
        document: dict[str, Any] = {}
        if is_first:
            document["full"] = True
        rows = {key: row for key, row in view.rows.items() if known.rows.get(key) != row}
        if is_first or rows:
            document["rows"] = rows
        if is_first or list(view.rows) != list(known.rows):
            document["keys"] = list(view.rows)
        if view.head != known.head:
            document["head"] = view.head
        self._known = view
        self._is_gone = False
        return document or None

    def forget(self) -> bool:
        """Note that the view does not exist. True if the reader must be notified."""
        was_gone = self._is_gone
        self._known = None
        self._is_gone = True
        return not was_gone


class Events:
    """Sends changes to readers after each round. `close` ends all streams."""

    def __init__(self, views: ViewsOfUsers, access: AccessRights, turns: Turns) -> None:
        self._views = views
        self._access = access
        self._turns = turns
        self._round = Event()
        self._tick = 0
        self._is_closed = False
        self.readers: Counter[str] = Counter()

    def publish(self, tick: int) -> None:
        """Wake readers: a round has ended, and the views are those of `tick`."""
        self._tick = tick
        self._round.set()
        self._round = Event()

    def close(self) -> None:
        self._is_closed = True
        self._round.set()

    def handle(self, request: Request) -> Response:
        """Answer with a stream. The query is that of `Views`, or has several of them as `of`.

        Raises RequestRefused. The stream waits for a view that does not exist yet, and keeps the permissions
        with which it began. An invalid query is refused before the stream begins.
        """
        queries = {of: dict(parse_qsl(of)) for of in request.args.getlist("of")} or {
            "": request.args.to_dict()
        }
        if len(queries) > MOST_VIEWS:
            raise RequestRefused(400, "TOO_MANY_VIEWS")
        scope = self._access.scope(request)
        for query in queries.values():
            with suppress(NotThere):
                self._views.of(scope).read(query)
        user = ""
        if self._access.is_identified(request):
            user = self._access.user(request)
        one = user or f"address {host_of(request.environ)}"
        if self.readers.total() >= MOST_READERS or self.readers[one] >= MOST_READERS_OF_ONE:
            raise RequestRefused(503, "TOO_MANY_READERS")
        response = uncached(self._stream(one, scope, queries), "text/event-stream; charset=utf-8")
        response.headers["X-Accel-Buffering"] = "no"  # for proxies that would buffer answers
        return response

    def _stream(self, one: str, scope: Scope, queries: Mapping[str, Query]) -> Iterator[bytes]:
        self.readers[one] += 1
        try:
            yield b"retry: %d\n\n" % _RETRY_MS
            readers = {of: Reader() for of in queries}
            while not self._is_closed:
                coming = self._round
                for of, reader in readers.items():
                    self._turns.wait(one, "events")
                    event = self._event(self._views.of(scope), of, reader, queries[of])
                    if event:
                        yield event
                if coming is self._round and not coming.wait(HEARTBEAT_S):
                    yield b": alive\n\n"
            yield b"event: bye\ndata: {}\n\n"
        finally:
            self.readers[one] -= 1
            if not self.readers[one]:
                del self.readers[one]

    def _event(self, views: Views, of: str, reader: Reader, query: Query) -> bytes:
        try:
            news = reader.news(views.read(query))
        except NotThere as refusal:
            if reader.forget():
                return _written("gone", of, {"message": refusal.message})
            return b""
        if news is None:
            return b""
        return _written("change", of, {"time": time(), "tick": self._tick, **news})


def _written(name: str, of: str, document: Mapping[str, Any]) -> bytes:
    # JSON contains no line breaks, whatever the names are.
    data = orjson.dumps({"of": of, **document} if of else document)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
