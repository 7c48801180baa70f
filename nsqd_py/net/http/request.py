"""One request, as handlers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from nsqd_py.errors import HttpError
from nsqd_py.runtime.logs import Log

if TYPE_CHECKING:
    from nsqd_py.net.http.answer_room import AnswerRoom
    from nsqd_py.net.http.answers import Reply
    from nsqd_py.net.http.guard import Guard
    from nsqd_py.net.http.router import Route, Target

UNLIMITED = 1 << 63
_MOST_PARTS = 64


class Application(Protocol):
    """The program behind an HTTP API.

    admin_guard        checks the credentials of those who administer; None without `--http-auth-file`
    clients_authorize  True if TCP clients have to AUTH
    answer_room        bounds what long answers take
    """

    log: Log
    http_clients: dict[Any, None]
    admin_guard: Guard | None
    clients_authorize: bool
    answer_room: AnswerRoom


App = TypeVar("App", bound=Application)


class Request(Generic[App]):
    """A request whose head is read; the body follows in `parts`.

    connection, ticket  who asks, and which of its answers this one will be
    reply              the answer when it is known before any handler runs
    credentials        an Authorization header that has to be checked first; empty for none
    is_unread          the rest of the body will not be read: the connection cannot go on
    """

    __slots__ = (
        "app", "connection", "credentials", "is_http_1_0", "is_unread", "keep_alive", "method", "parts", "reply",
        "size_bytes", "size_limit", "target", "ticket", "url",
    )  # fmt: skip

    def __init__(
        self, app: App, connection: Any, method: str, url: str, target: Target[App],
        is_http_1_0: bool, keep_alive: bool,
    ) -> None:  # fmt: skip
        self.app = app
        self.connection = connection
        self.method = method
        self.url = url
        self.target = target
        self.is_http_1_0 = is_http_1_0
        self.keep_alive = keep_alive
        self.is_unread = False
        self.credentials = b""
        self.reply: Reply | None = None
        self.parts: list[bytes | bytearray] = []
        self.size_bytes = 0
        self.size_limit = UNLIMITED
        self.ticket = 0

    @property
    def route(self) -> Route[App]:
        """The route; only for requests that have one."""
        route = self.target.route
        assert route is not None
        return route

    @property
    def body(self) -> bytes:
        """All of the body, for the routes that keep it."""
        parts = self.parts
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def keep(self, part: bytes) -> None:
        """Some more of the body. One that comes byte by byte takes no object for each."""
        parts = self.parts
        if len(parts) < _MOST_PARTS:
            parts.append(part)
        else:
            if len(parts) == _MOST_PARTS:
                parts.append(bytearray())
            parts[-1] += part

    @property
    def params(self) -> dict[str, str]:
        """The query's parameters. Raises HttpError 400 when it is malformed."""
        params = self.target.params
        if params is None:
            self.app.log.of_clients.error("failed to parse request params - %s", self.target.query_error)
            raise HttpError(400, "INVALID_REQUEST")
        return params
