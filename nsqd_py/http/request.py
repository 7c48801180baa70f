"""One request, as handlers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd_py.broker import Broker
from nsqd_py.errors import HttpError
from nsqd_py.topic import Publisher

if TYPE_CHECKING:
    from nsqd_py.http.answers import Reply
    from nsqd_py.http.routes import Route, Target

UNLIMITED = 1 << 63


class Request:
    """A request whose head is read; the body follows in `parts`.

    publisher, ticket  who is told when a publish fails, and which of its answers that is about
    reply              the answer when it is known before any handler runs
    is_unread          the rest of the body will not be read: the connection cannot go on
    """

    __slots__ = (
        "broker", "is_http_1_0", "is_unread", "keep_alive", "method", "parts", "publisher", "reply", "size_bytes",
        "size_limit", "target", "ticket", "url",
    )  # fmt: skip

    def __init__(
        self, broker: Broker, publisher: Publisher, method: str, url: str, target: Target,
        is_http_1_0: bool, keep_alive: bool,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.publisher = publisher
        self.method = method
        self.url = url
        self.target = target
        self.is_http_1_0 = is_http_1_0
        self.keep_alive = keep_alive
        self.is_unread = False
        self.reply: Reply | None = None
        self.parts: list[bytes] = []
        self.size_bytes = 0
        self.size_limit = UNLIMITED
        self.ticket = 0

    @property
    def route(self) -> Route:
        """The route; only for requests that have one."""
        route = self.target.route
        assert route is not None
        return route

    @property
    def body(self) -> bytes:
        """All of the body, for the routes that keep it."""
        parts = self.parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def params(self) -> dict[str, str]:
        """The query's parameters. Raises HttpError 400 when it is malformed."""
        params = self.target.params
        if params is None:
            self.broker.log.error("failed to parse request params - %s", self.target.query_error)
            raise HttpError(400, "INVALID_REQUEST")
        return params
