"""What stands between one client and the topics, where clients have to be authorized."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import gevent

from nsqd_py.auth.permissions import Authorization
from nsqd_py.auth.servers import AuthServers, NoAuthorization, Question
from nsqd_py.errors import AuthError, AuthFailed, AuthFirst, ClientError, Invalid, Unauthorized
from nsqd_py.net.addresses import split_address
from nsqd_py.pqueues import Alarms
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs import Log
from nsqd_py.settings.durations import SECOND_NS

if TYPE_CHECKING:
    from nsqd_py.net.tls import TlsInfo

_MOST_REMEMBERED = 1024
# An alarm stays in memory until its time, and its client with it, though it may be gone; an authorization may
# be good for days.
LOOK_EVERY_NS = 60 * SECOND_NS

Step = Callable[[], None]


class Guarded(Protocol):
    """The connection, as its guard sees it."""

    log: Log
    peer: str

    def pause(self) -> None:
        """Act on nothing until `go_on`."""

    def go_on(self, step: Step) -> None:
        """Take `step`, which may raise ClientError, and then what came meanwhile."""

    def forget_pub(self) -> None:
        """Ask again whether the next PUB is permitted."""

    @property
    def tls_info(self) -> TlsInfo | None: ...

    def close(self, reason: str) -> None: ...


class Guard:
    """The authorization of one client, from AUTH on, and its renewal.

    What was permitted is remembered until the authorization expires: then the guard asks the auth servers again,
    when the client next wants to do something. While it asks, the client is on hold and nobody else.
    """

    __slots__ = ("_alarm", "_authorization", "_client", "_clock", "_expires_ns", "_greenlet", "_is_fresh", "_permitted",
                 "_secret", "_servers")  # fmt: skip

    def __init__(self, client: Guarded, servers: AuthServers, alarms: Alarms, clock: Callable[[], int]) -> None:
        self._client = client
        self._servers = servers
        self._clock = clock
        self._alarm = alarms.alarm(self._look)
        self._expires_ns = 0
        self._secret = b""
        self._authorization: Authorization | None = None
        self._is_fresh = False
        self._permitted: set[tuple[bytes, bytes]] = set()
        self._greenlet: Any = None

    @property
    def authorization(self) -> Authorization | None:
        """What the client may do; None where that is nothing."""
        found = self._authorization
        return found if found is not None and found.rules else None

    # ---- commands

    def authenticate(self, secret: bytes, answer: Callable[[bytes], None]) -> None:
        """AUTH: find out what the client may do; `answer` gets the data of the response. Raises Invalid."""
        if self.authorization is not None:
            raise Invalid("AUTH already set")
        self._secret = secret
        self._ask(partial(self._welcome, answer))

    def _welcome(self, answer: Callable[[bytes], None]) -> None:
        found = self.authorization
        if found is None:
            raise Unauthorized("AUTH no authorizations found")
        document = {
            "identity": found.identity,
            "identity_url": found.identity_url,
            "permission_count": len(found.rules),
        }
        answer(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode())

    def check(self, command: str, topic_name: bytes, channel_name: bytes, act: Step) -> None:
        """Call `act` if the client may do this; later, where the auth servers have to be asked first.

        Raises AuthFirst and Unauthorized.
        """
        if (topic_name, channel_name) in self._permitted:
            act()
        elif self.authorization is None:
            raise AuthFirst(f"AUTH required before {command}")
        else:
            step = partial(self._decide, command, topic_name, channel_name, act)
            if self._is_fresh:
                step()
            else:
                self._ask(step)

    def _decide(self, command: str, topic_name: bytes, channel_name: bytes, act: Step) -> None:
        found = self._authorization
        if found is None or not found.permits(topic_name, channel_name):
            raise Unauthorized(f"AUTH failed for {command} on {quote(topic_name)} {quote(channel_name)}")
        if len(self._permitted) >= _MOST_REMEMBERED:
            self._permitted.clear()
        self._permitted.add((topic_name, channel_name))
        act()

    # ---- asking

    def _ask(self, then: Step) -> None:
        self._client.pause()
        self._greenlet = gevent.spawn(self._run, then)

    def _run(self, then: Step) -> None:
        client = self._client
        try:
            step = self._answered(then)
            self._greenlet = None
            client.go_on(step)
        except Exception as error:  # a bug here must not leave the client waiting
            client.log.exception("client(%s) - %r", client.peer, error)
            client.close("internal error")

    def _answered(self, then: Step) -> Step:
        """What follows from asking the auth servers."""
        client = self._client
        try:
            self._accept(self._servers.ask(self._question()))
        except NoAuthorization as error:
            client.log.of_clients.warning("PROTOCOL(V2): [%s] AUTH failed %s", client.peer, error)
            return partial(_fail, AuthFailed("AUTH failed"))  # why is not for clients to know
        except Exception as error:  # a bug in here must not leave the client on hold for ever
            client.log.exception("PROTOCOL(V2): [%s] AUTH error %r", client.peer, error)
            return partial(_fail, AuthError("AUTH error"))
        return then

    def _question(self) -> Question:
        tls = self._client.tls_info
        common_name = tls.common_name if tls is not None else ""
        return Question(self._secret, remote_ip(self._client.peer), tls is not None, common_name)

    def _accept(self, found: Authorization) -> None:
        self._authorization = found
        self._is_fresh = True
        self._permitted.clear()
        now_ns = self._clock()
        self._expires_ns = now_ns + found.ttl_s * SECOND_NS
        self._look(now_ns)

    def _look(self, now_ns: int) -> None:
        """Let nothing be remembered when the authorization has expired."""
        if now_ns < self._expires_ns:
            self._alarm.set(min(self._expires_ns, now_ns + LOOK_EVERY_NS))
        else:
            self._is_fresh = False
            self._permitted.clear()
            self._client.forget_pub()

    def close(self) -> None:
        """The client is gone."""
        self._alarm.set(None)
        if self._greenlet is not None:
            self._greenlet.kill(block=False)


def remote_ip(peer: str) -> str:
    """The IP address of a client, empty on a unix socket. One of IPv4 that came to an IPv6 socket is of IPv4."""
    parts = split_address(peer)
    return parts[0].removeprefix("::ffff:") if parts is not None else ""


def _fail(error: ClientError) -> None:
    raise error
