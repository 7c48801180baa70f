"""One nsqlookupd: a greenlet that stays connected to it and registers the topics and channels of this nsqd.

`LookupPeer` has the connection, `Changes` what must be reported, and `ChannelQuery` asks for the channels of a topic.

A key is `(topic, channel)`; the channel of the topic itself is `""`. Changes are stored as a set of keys and not as a
queue of commands: while an nsqlookupd hangs, they take no more memory than the topics and channels themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import random
from typing import Any
from urllib.parse import quote_plus

import gevent
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from nsqd_py.broker.services import Topic
from nsqd_py.lookup.connection import OK, BadResponse, LookupConnection, parse_peer_info
from nsqd_py.lookup.host import Endpoint, LookupAddress
from nsqd_py.net.http import HttpClientError, Unreachable
from nsqd_py.net.http.client import HttpClient
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.logs.outages import Backoff, OutageLog

Key = tuple[str, str]

_AT_A_TIME = 16
# Limits on an answer: far more than a topic uses, yet quick to check and small in memory.
MAX_ANSWER_BYTES = 1024 * 1024
MAX_CHANNELS = 10_000
PING = b"PING\n"
# The last command of an nsqd that ends. For Go's nsqlookupd, which ignores the word, it is a heartbeat.
LEAVING = b"PING leaving\n"
PING_EVERY_S = 15.0
# Commands sent before their answers are read: at most 40 kB, which fits into any socket's buffer.
COMMANDS_AT_ONCE = 256
FIRST_RETRY_S = 0.1
MOST_RETRY_S = 5.0
# A connection that lasted this long was a good one; a later failure is a new outage.
LASTED_S = 10.0


# ---- changes


class Changes:
    """The changes since `begin`, which each new connection calls first."""

    def __init__(self) -> None:
        self._reported: set[Key] = set()
        self._pending: dict[Key, bool] = {}  # True if the key was deleted since it was reported

    def begin(self, existing: Iterable[Key]) -> None:
        """Start with an nsqlookupd that is about to get all of `existing`."""
        self._reported = set(existing)
        self._pending.clear()

    def note(self, key: Key, was_deleted: bool) -> None:
        if not was_deleted:
            self._pending.setdefault(key, False)
        elif key in self._reported:
            self._pending[key] = True
        else:
            self._pending.pop(key, None)  # made and deleted before the nsqlookupd heard of it

    def __bool__(self) -> bool:
        return bool(self._pending)

    def take(self, topics: Mapping[str, Topic]) -> list[bytes]:
        """Return the commands that report the changes. Deletions come first, so that a key recreated counts as new."""
        pending, self._pending = self._pending, {}
        deleted = [key for key, was_deleted in pending.items() if was_deleted]
        made = [key for key in pending if _exists(key, topics)]
        self._reported.difference_update(deleted)
        self._reported.update(made)
        # A channel before its topic: nsqlookupd warns of topics that leave channels behind.
        deleted.sort(key=lambda key: not key[1])
        leaving = [_command("UNREGISTER", key) for key in deleted]
        coming = [_command("REGISTER", key) for key in made]
        return leaving + coming


def _exists(key: Key, topics: Mapping[str, Topic]) -> bool:
    name, channel = key
    topic = topics.get(name)
    return topic is not None and (not channel or channel in topic.channels)


def _command(verb: str, key: Key) -> bytes:
    return " ".join(filter(None, (verb, *key))).encode() + b"\n"


# ---- questions over HTTP


class ChannelQuery:
    """The HTTP side of one nsqlookupd.

    Questions go to its broadcast address, or to the IP address of its TCP side if that address cannot be reached.
    `tls_name` is the name that its certificate must have. `address` identifies the nsqlookupd.
    """

    def __init__(self, client: HttpClient, broadcast_address: str, ip: str, port: int, tls_name: str) -> None:
        self._client = client
        self._hosts = list(dict.fromkeys(filter(None, (broadcast_address, ip))))
        self._port = port
        self._tls_name = tls_name
        self._turns = BoundedSemaphore(_AT_A_TIME)
        self.address = (self._hosts[0], port)

    def channels(self, topic_name: str) -> list[str]:
        """Return the channels, without ephemeral ones, that the topic has on other nsqds. Raises HttpClientError."""
        path = f"/channels?topic={quote_plus(topic_name)}"
        with self._turns:
            return lasting_channels(self._get(path))

    def _get(self, path: str) -> Any:
        first, *others = self._hosts
        try:
            return self._client.get_json(first, self._port, path, tls_name=self._tls_name)
        except Unreachable:
            if not others:
                raise
        answer = self._client.get_json(others[0], self._port, path, tls_name=self._tls_name)
        self._hosts = [others[0], first]  # the next question need not wait for the other again
        return answer


def lasting_channels(answer: Any) -> list[str]:
    """Return the channels of an answer, without ephemeral channels and invalid names. Raises HttpClientError."""
    names = None
    if isinstance(answer, dict):
        names = answer.get("channels")
    if not isinstance(names, list):
        raise HttpClientError("the answer has no list of channels")
    if len(names) > MAX_CHANNELS:
        raise HttpClientError(
            f"the answer has {len(names)} channels, but at most {MAX_CHANNELS} are taken up"
        )
    texts = [name for name in names if isinstance(name, str)]
    return [name for name in texts if is_valid_name(name.encode(errors="replace")) and not is_ephemeral(name)]


# ---- the connection


@dataclass(frozen=True)
class PeerContext:
    """The objects that all peers of an nsqd share.

    identify   makes the IDENTIFY command
    on_known   called by a peer after IDENTIFY, before it registers anything; may wait
    on_failed  called when a connection or an attempt ended; returns True if another address is tried instead
    """

    log: Log
    topics: Mapping[str, Topic]
    identify: Callable[[], bytes]
    on_known: Callable[[LookupPeer], None]
    on_failed: Callable[[LookupPeer], bool]
    client: HttpClient
    tls: Any
    max_response_bytes: int
    clock: Callable[[], float] = time.monotonic


class LookupPeer:
    """One endpoint of a configured address. It can be started and stopped many times.

    query         its HTTP side; None before the first connection
    asked         the topics whose channels it has been asked for
    was_tried     True after the first attempt, also if it failed
    is_connected  True while an identified connection is open
    is_failing    True if the latest attempt since the start failed
    """

    def __init__(self, endpoint: Endpoint, address: LookupAddress, context: PeerContext) -> None:
        self.endpoint = endpoint
        if address.endpoint is not None:
            self.name = address.text
        else:
            self.name = f"{address.text} at {endpoint}"
        self.query: ChannelQuery | None = None
        self.asked: set[str] = set()
        self.was_tried = False
        self.is_connected = False
        self.is_failing = False
        self._is_leaving = False
        self._tls_name = address.host
        self._context = context
        self._log = context.log
        self._clock = context.clock
        self._backoff = Backoff(FIRST_RETRY_S, MOST_RETRY_S, random)
        self._outage = OutageLog(self._log.of_clients, self._clock)
        self._refusals = OutageLog(self._log.of_clients, self._clock)
        self._changes = Changes()
        self._wake = Event()
        self._greenlet: gevent.Greenlet[..., None] | None = None

    # ---- start and stop

    @property
    def is_started(self) -> bool:
        return self._greenlet is not None

    def start(self) -> None:
        if self._greenlet is None:
            self.is_failing = False
            self._greenlet = gevent.spawn(self._run)

    def stop(self, *, is_leaving: bool = False) -> gevent.Greenlet[..., None] | None:
        """End the connection soon. Return the greenlet, which can be joined.

        is_leaving  notify the nsqlookupd first that this nsqd ends, so that observers do not miss it
        """
        self._is_leaving = is_leaving
        greenlet, self._greenlet = self._greenlet, None
        if greenlet is not None and greenlet is not gevent.getcurrent():
            greenlet.kill(block=False)
        return greenlet

    def note(self, key: Key, was_deleted: bool) -> None:
        """Report soon that a topic or channel was made or deleted."""
        self._changes.note(key, was_deleted)
        self._wake.set()

    # ---- one connection after the other

    def _run(self) -> None:
        while self._greenlet is gevent.getcurrent():  # a failure may stop its own peer
            gevent.sleep(self._backoff.wait_s(self._clock()))
            try:
                self._try_once()
            except Exception as error:  # noqa: BLE001 - likewise after a bug in what follows a failure
                self._log.exception("LOOKUPD(%s): %r", self.name, error)

    def _try_once(self) -> None:
        began_s = self._clock()
        if not self._outage.is_on:
            self._log.of_clients.info("LOOKUP connecting to %s", self.name)
        around = self._context
        try:
            connection = LookupConnection(
                self.endpoint, around.max_response_bytes, around.tls, self._tls_name
            )
            try:
                self._serve(connection)
            except gevent.GreenletExit:
                if self._is_leaving and self.is_connected:
                    with suppress(OSError):
                        connection.send(LEAVING)
                raise
            finally:
                connection.close()
                self.is_connected = False
        except Exception as error:  # noqa: BLE001 - after a bug, consumers must find this nsqd again
            if not isinstance(error, OSError | BadResponse):
                self._log.exception("LOOKUPD(%s): %r", self.name, error)
            self._failed(error, lasted_s=self._clock() - began_s)

    def _failed(self, error: Exception, lasted_s: float) -> None:
        if lasted_s >= LASTED_S:
            self._backoff.reset()
        self._backoff.failed(self._clock())
        self.was_tried = True
        self.is_failing = True
        reason = getattr(error, "strerror", None) or error
        if self._context.on_failed(self):  # as ::1 for a localhost that listens on 127.0.0.1
            self._log.of_clients.info("LOOKUPD(%s): %s", self.name, reason)
        else:
            self._outage.report("LOOKUPD(%s): %s", self.name, reason)

    def _serve(self, connection: LookupConnection) -> None:
        """Register everything, then report changes, until the connection fails."""
        self._identify(connection)
        self._context.on_known(self)
        self._register_all(connection)
        self._outage.end("LOOKUPD(%s): connected again", self.name)
        ping_at_s = self._clock() + PING_EVERY_S
        while True:
            connection.wait(self._wake, max(0.0, ping_at_s - self._clock()))
            self._wake.clear()
            if self._changes:
                self._report_changes(connection)
            if self._clock() >= ping_at_s:
                self._log.debug("LOOKUPD(%s): sending heartbeat", self.name)
                self._send(connection, [PING])
                ping_at_s = self._clock() + PING_EVERY_S

    def _identify(self, connection: LookupConnection) -> None:
        connection.send(self._context.identify())
        info = parse_peer_info(connection.read())
        self._log.of_clients.info("LOOKUPD(%s): peer info %s", self.name, info)
        broadcast_address = info["broadcast_address"]
        http_port = max(0, info["http_port"])
        if not broadcast_address:
            self._log.of_clients.error("LOOKUPD(%s): no broadcast address", self.name)
        self.query = None
        if http_port:
            self.query = ChannelQuery(
                self._context.client, broadcast_address, self.endpoint.ip, http_port, self._tls_name
            )
        self.was_tried = True
        self.is_connected = True
        self.is_failing = False

    # ---- registrations

    def _register_all(self, connection: LookupConnection) -> None:
        # Changes are collected from the same moment on, so that none is missed.
        topics = []
        channels = []
        without_channels = []
        for name, topic in self._context.topics.items():
            topics.append((name, ""))
            channels += [(name, channel) for channel in topic.channels]
            if not topic.channels:
                without_channels.append((name, ""))
        keys = topics + channels
        self._changes.begin(keys)
        # Registering a channel registers its topic too.
        commands = [_command("REGISTER", key) for key in without_channels + channels]
        self._log.of_clients.info("LOOKUPD(%s): registering %d topics and channels", self.name, len(keys))
        self._send(connection, commands)

    def _report_changes(self, connection: LookupConnection) -> None:
        commands = self._changes.take(self._context.topics)
        for command in commands:
            self._log.of_clients.info("LOOKUPD(%s): %s", self.name, _shown(command))
        self._send(connection, commands)

    def _send(self, connection: LookupConnection, commands: Sequence[bytes]) -> None:
        for start in range(0, len(commands), COMMANDS_AT_ONCE):
            window = commands[start : start + COMMANDS_AT_ONCE]
            connection.send(*window)
            for command in window:
                response = connection.read()
                if response != OK:  # most close the connection; one because of a limit does not
                    self._refusals.report(
                        "LOOKUPD(%s): %s - %s", self.name, _shown(command), _shown(response)
                    )


def _shown(data: bytes) -> str:
    return data.decode(errors="replace").rstrip("\n")
