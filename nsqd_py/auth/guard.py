"""Checks whether a client may publish or subscribe, if clients have to AUTH."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import gevent
from gevent import ssl

from nsqd_py.auth.permissions import Authorization
from nsqd_py.auth.servers import AuthFailures, AuthQuestion, AuthServers, NoAuthorization, Renewals
from nsqd_py.errors import AuthError, AuthFailed, AuthFirst, ClientError, Invalid, Unauthorized
from nsqd_py.net.addresses import host_of
from nsqd_py.net.http.client import HttpClient, Resolve
from nsqd_py.net.peer_tls import PeerTls
from nsqd_py.pqueues.alarms import Alarms
from nsqd_py.protocol.names import quote
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.durations import SECOND_NS

if TYPE_CHECKING:
    from nsqd_py.net.tls import TlsInfo

_MOST_REMEMBERED = 1024
# An authorization may be valid for days. An alarm keeps its client in memory until it rings, even after a disconnect,
# so it rings at least this often.
CHECK_EVERY_NS = 60 * SECOND_NS
# While no auth server answers, a subscription lasts as much longer as its authorization was valid, within these limits.
SHORTEST_GRACE_S = 10
LONGEST_GRACE_S = 60

Step = Callable[[], None]


class Guarded(Protocol):
    """The methods of a connection that its guard uses."""

    log: Log
    peer: str

    def pause(self) -> None:
        """Handle no commands until `go_on`."""

    def go_on(self, step: Step) -> None:
        """Call `step`, which may raise ClientError, and then handle the commands that have arrived."""

    def forget_pub(self) -> None:
        """Check the permission of the next PUB again."""

    def revoke(self, error: ClientError) -> None:
        """Send no more messages to this consumer, and close the connection with the error."""

    @property
    def tls_info(self) -> TlsInfo | None: ...

    def close(self, reason: str) -> None: ...


class AuthGuard:
    """The authorization of one client, from AUTH on, and its renewal.

    Permitted topics and channels are remembered until the authorization expires. Then the guard asks the auth servers
    again: for a publisher at its next command, which waits for the answer; for a consumer at once, in the background.
    """

    def __init__(
        self,
        client: Guarded,
        servers: AuthServers,
        renewals: Renewals,
        alarms: Alarms,
        clock: Callable[[], int],
    ) -> None:
        self._client = client
        self._servers = servers
        self._renewals = renewals
        self._clock = clock
        self._alarm = alarms.alarm(self._check_expiry)
        self._expires_ns = 0
        self._secret = b""
        self._authorization: Authorization | None = None
        self._is_fresh = False
        self._is_renewing = False
        self._permitted: set[tuple[bytes, bytes]] = set()
        self._subscription: tuple[bytes, bytes] | None = None
        self._greenlet: Any = None

    @property
    def authorization(self) -> Authorization | None:
        """The client's authorization; None if it permits nothing."""
        found = self._authorization
        if found is not None and found.rules:
            return found
        return None

    # ---- commands

    def authenticate(self, secret: bytes, answer: Callable[[bytes], None]) -> None:
        """Handle AUTH: ask the auth servers, then call `answer` with the data of the response. Raises Invalid."""
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
        """Call `act` if the command is permitted; later, if the auth servers have to be asked first.

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
            raise _unauthorized(command, topic_name, channel_name)
        if len(self._permitted) >= _MOST_REMEMBERED:
            self._permitted.clear()
        self._permitted.add((topic_name, channel_name))
        if channel_name:
            self._subscription = topic_name, channel_name
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
        except Exception as error:  # noqa: BLE001 - a bug here must not leave the client waiting
            report_bug(client.log, f"client({client.peer})", error)
            client.close("internal error")

    def _answered(self, then: Step) -> Step:
        """Ask the auth servers; return `then`, or a step that raises the client's error."""
        client = self._client
        try:
            self._accept(self._servers.ask(self._question()))
        except NoAuthorization as error:
            client.log.of_clients.warning("PROTOCOL(V2): [%s] AUTH failed %s", client.peer, error)
            return partial(_fail, AuthFailed("AUTH failed"))  # clients must not learn the reason
        except Unauthorized as error:
            return partial(_fail, error)
        except Exception as error:  # noqa: BLE001 - a bug here must not leave the client waiting
            report_bug(client.log, f"AUTH error of client({client.peer})", error)
            return partial(_fail, AuthError("AUTH error"))
        return then

    def _question(self) -> AuthQuestion:
        tls = self._client.tls_info
        common_name = tls.common_name if tls is not None else ""
        return AuthQuestion(self._secret, host_of(self._client.peer), tls is not None, common_name)

    def _accept(self, found: Authorization) -> None:
        """Use this authorization from now on. Raises Unauthorized if it does not permit the client's subscription."""
        self._authorization = found
        self._is_fresh = True
        self._permitted.clear()
        now_ns = self._clock()
        self._expires_ns = now_ns + found.ttl_s * SECOND_NS
        self._check_expiry(now_ns)
        if self._subscription is not None and not found.permits(*self._subscription):
            raise _unauthorized("SUB", *self._subscription)

    def _check_expiry(self, now_ns: int) -> None:
        """Forget all permissions if the authorization has expired, and renew that of a consumer; set the next alarm."""
        if now_ns < self._expires_ns:
            self._alarm.set(min(self._expires_ns, now_ns + CHECK_EVERY_NS))
            return
        self._is_fresh = False
        self._permitted.clear()
        self._client.forget_pub()
        if self._subscription is not None:
            self._renew(now_ns)

    # ---- the subscription of a consumer

    def _renew(self, now_ns: int) -> None:
        """Ask the auth servers in the background, again every second; end the subscription if none answers in time."""
        assert self._authorization is not None
        grace_s = min(max(self._authorization.ttl_s, SHORTEST_GRACE_S), LONGEST_GRACE_S)
        if now_ns >= self._expires_ns + grace_s * SECOND_NS:
            self._client.revoke(AuthFailed("AUTH failed"))
            return
        if not self._is_renewing:
            self._is_renewing = True
            self._renewals.add(self._question(), self.renewed)
        self._alarm.set(now_ns + SECOND_NS)

    def renewed(self, answer: Authorization | NoAuthorization) -> None:
        """Handle the answer of the auth servers; an answer that refuses the subscription ends it."""
        self._is_renewing = False
        # The client has gone, or a command has asked in between.
        if self._subscription is None or self._is_fresh:
            return
        client = self._client
        if not isinstance(answer, NoAuthorization):
            try:
                self._accept(answer)
            except Unauthorized as error:
                client.revoke(error)
            return
        client.log.of_clients.warning("PROTOCOL(V2): [%s] AUTH failed %s", client.peer, answer)
        if answer.is_refusal:
            client.revoke(AuthFailed("AUTH failed"))

    def close(self) -> None:
        """Release the alarm and the greenlet: the client has disconnected."""
        self._alarm.close()
        self._subscription = None
        if self._greenlet is not None:
            self._greenlet.kill(block=False)


def _unauthorized(command: str, topic_name: bytes, channel_name: bytes) -> Unauthorized:
    return Unauthorized(f"AUTH failed for {command} on {quote(topic_name)} {quote(channel_name)}")


def _fail(error: ClientError) -> None:
    raise error


def guard_maker(
    options: Any, log: Log, alarms: Alarms, clock: Callable[[], int], resolve: Resolve
) -> tuple[Callable[[Guarded], AuthGuard], AuthFailures]:
    """Return a function that makes the guard of a client, for nsqd's options with --auth-http-address; and its failures."""

    def make_tls() -> PeerTls:
        tls = PeerTls.of(options, "auth", ssl.SSLContext, log.error)
        tls.load()
        return tls

    client = HttpClient.of(options, resolve=resolve)
    servers = AuthServers(options.auth_http_address, options.auth_http_request_method, client, make_tls)
    renewals = Renewals(servers, log)
    return lambda client: AuthGuard(client, servers, renewals, alarms, clock), servers.failures
