"""Server-Sent Events: what a page looks at, and then what changes of it, round after round.

An event's id is the run of this nsqadmin and the number of its round. Nothing is kept for a reader but what it has
been sent: one who reads slowly misses rounds, not changes, and one who reads nothing is closed by the socket's
time-out. A reader that comes back gets what it looks at anew, unless it has missed nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import time
from typing import Any

import orjson
from gevent.event import Event
from werkzeug.wrappers import Request, Response

from nsqadmin_py.cluster.views import View
from nsqadmin_py.web.answers import NotThere, Refusal
from nsqadmin_py.web.views_api import Views

MOST_READERS = 500
HEARTBEAT_S = 15.0
_RETRY_MS = 2000


class Reader:
    """What one page knows of one view."""

    def __init__(self, tick: int = -1) -> None:
        self.tick = tick  # of what it knows
        self._keys: list[str] | None = None
        self._head: Mapping[str, Any] = {}

    def news(self, view: View, tick: int) -> dict[str, Any] | None:
        """What it has to be told: head, rows that changed, and the order of all where that changed. None: nothing.

        What it gets first is all there is, and says `full`.
        """
        document: dict[str, Any] = {}
        if self._keys is None:
            document = {"full": True, "rows": view.rows}
        else:
            known = set(self._keys)
            rows = {
                key: row for key, row in view.rows.items() if key not in known or view.changed[key] > self.tick
            }
            if rows:
                document["rows"] = rows
        keys = list(view.rows)
        if keys != self._keys:
            document["keys"] = keys
        if view.head != self._head:
            document["head"] = view.head
        self._keys, self._head, self.tick = keys, view.head, tick
        return document or None


    def forget(self, tick: int) -> bool:
        """What it looks at is not there; true where it has to be told so."""
        was_there = self._keys is not None or self.tick < 0
        self._keys, self._head, self.tick = None, {}, tick
        return was_there


class Events:
    """Tells readers after each round. `close` ends all of them."""

    def __init__(self, views: Views, wall_clock: Callable[[], float] = time) -> None:
        self._views = views
        self._wall_clock = wall_clock
        self._run = secrets.token_hex(4)
        self._round = Event()
        self._tick = 0
        self._is_closed = False
        self.readers = 0

    def publish(self, tick: int) -> None:
        """A round is over, and the views are those of `tick`."""
        self._tick = tick
        over, self._round = self._round, Event()
        over.set()

    def close(self) -> None:
        self._is_closed = True
        self._round.set()

    def handle(self, request: Request) -> Response:
        """`view` and its words are as in the queries of the views; see `Views`. Raises Refusal.

        What is not there (yet) is waited for; what makes no sense is refused before the stream begins.
        """
        query = request.args.to_dict()
        with suppress(NotThere):
            self._views.read(query)
        if self.readers >= MOST_READERS:
            raise Refusal(503, "TOO_MANY_READERS")
        last_id = request.headers.get("Last-Event-ID") or query.get("last_event_id", "")
        headers = {
            "Content-Type": "text/event-stream; charset=utf-8",
            "Cache-Control": "no-store",
            "X-Accel-Buffering": "no",  # for proxies that gather answers
        }
        return Response(self._stream(query, last_id), 200, headers)

    def _stream(self, query: Mapping[str, str], last_id: str) -> Iterator[bytes]:
        self.readers += 1
        try:
            yield b"retry: %d\n\n" % _RETRY_MS
            reader = Reader()
            if last_id and last_id == self._id():
                with suppress(NotThere):
                    reader.news(self._views.read(query), self._tick)  # it knows all this
            while not self._is_closed:
                coming = self._round
                event = self._event(reader, query)
                if event:
                    yield event
                if coming is self._round and not coming.wait(HEARTBEAT_S):
                    yield b": alive\n\n"
            yield b"event: bye\ndata: {}\n\n"
        finally:
            self.readers -= 1

    def _event(self, reader: Reader, query: Mapping[str, str]) -> bytes:
        try:
            news = reader.news(self._views.read(query), self._tick)
        except NotThere as refusal:
            if not reader.forget(self._tick):
                return b""
            return self._written("gone", {"message": refusal.message})
        if news is None:
            return b""
        return self._written("change", {"time": self._wall_clock(), "tick": self._tick, **news})

    def _written(self, name: str, document: Any) -> bytes:
        # JSON has no line breaks in it, whatever the names are.
        return b"event: %s\nid: %s\ndata: %s\n\n" % (name.encode(), self._id().encode(), orjson.dumps(document))

    def _id(self) -> str:
        return f"{self._run}-{self._tick}"
