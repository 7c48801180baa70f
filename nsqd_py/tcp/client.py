"""A client as topics and channels see it: a publisher and a consumer, with what it has in flight.

Below its commands it is a stream with negotiated layers, heartbeats, errors and time-outs.
"""

from __future__ import annotations

import random
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.errors import ClientError, DpubFailed, MpubFailed, PubFailed
from nsqd_py.net.addresses import host_and_port
from nsqd_py.net.layers import DeflateLayer, Layer, Stacked
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import CLOSED, CLOSING, UNHANDLED, UNREAD, EarlyAnswers, Stream
from nsqd_py.pqueues.alarms import Alarm
from nsqd_py.pqueues.in_flight import InFlightTable
from nsqd_py.protocol import frames
from nsqd_py.protocol.commands import DPUB, MPUB, PUB
from nsqd_py.protocol.session import STATE_STANDBY, Limits, Session, Upgrades
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.delivery import GLOBAL
from nsqd_py.runtime.logs.daemon_log import Log

if TYPE_CHECKING:
    from nsqd_py.auth.guard import AuthGuard
    from nsqd_py.auth.permissions import Authorization
    from nsqd_py.net.tls import TlsInfo, TlsLayer

PUBLISH_ERRORS: dict[int, tuple[str, type[ClientError]]] = {
    PUB: ("PUB", PubFailed),
    MPUB: ("MPUB", MpubFailed),
    DPUB: ("DPUB", DpubFailed),
}

# A consumer that answers all its in-flight messages too late (2,500 by default) causes that number of errors at once.
ERRORS_AT_ONCE = 10_000
ERRORS_PER_S = 1_000
_SILENT_INTERVALS = 2
MS_NS = 1_000_000
_RECHECK_NS = 100 * MS_NS


class ErrorCharge:
    """The error count of one client, which decreases by ERRORS_PER_S each second.

    is_slow  True while the client is served more slowly because of its errors
    """

    __slots__ = ("_count", "_since_s", "is_slow")

    def __init__(self, now_s: float) -> None:
        self._count = 0.0
        self._since_s = now_s
        self.is_slow = False

    def add(self, now_s: float) -> bool:
        """Count an error. Return True if there are too many now."""
        self._count += 1
        return self._count > ERRORS_AT_ONCE and self.is_over(now_s)

    def is_over(self, now_s: float) -> bool:
        """True if there are too many errors. After ten seconds without errors it is always False."""
        forgiven = (now_s - self._since_s) * ERRORS_PER_S
        left = min(self._count, 2 * ERRORS_AT_ONCE) - forgiven
        self._count = max(0.0, left)
        self._since_s = now_s
        return self._count > ERRORS_AT_ONCE


class Pulse:
    """The signs of life of one client, and its next heartbeat.

    loop          the event loop, whose `now` is the clock of `heard_s`
    heard_s       the time of the last sign of life
    connect_time  when the client connected, in s since the epoch
    alarm         rings when a heartbeat is due
    due_ns        the time for which the alarm was set
    """

    __slots__ = ("alarm", "connect_time", "due_ns", "heard_s", "loop")

    def __init__(self, loop: Any, alarm: Alarm) -> None:
        self.loop = loop
        self.heard_s: float = loop.now()
        self.connect_time = time.time()
        self.alarm = alarm
        self.due_ns = 0

    def hear(self) -> None:
        """Measure the silence of the client from now on."""
        self.heard_s = self.loop.now()

    def silent_ns(self) -> int:
        """Return the time since the last sign of life."""
        return int((self.loop.now() - self.heard_s) * 1e9)

    def beat_at(self, due_ns: int) -> None:
        """Set the time of the next heartbeat."""
        self.due_ns = due_ns
        self.alarm.set(due_ns)


class Subscription:
    """The subscription of a consumer, and the number of messages that it has answered. Topic and channel are None before SUB."""

    __slots__ = ("channel", "finish_count", "requeue_count", "topic")

    def __init__(self) -> None:
        self.topic: Topic | None = None
        self.channel: Channel | None = None
        self.finish_count = 0
        self.requeue_count = 0


class Client(Stream):
    """A producer or consumer. Topics use it as a `Publisher`, its channel as a `SubscribedClient`.

    A subclass reads its commands. What a PUB, a FIN, a RDY or a delivery asks for are attributes of the client itself.
    """

    __slots__ = (
        "_alarm",
        "_budget",
        "_errors",
        "_tls",
        "broker",
        "early",
        "guard",
        "in_flight",
        "is_waiting",
        "message_count",
        "msg_timeout_ns",
        "nearness",
        "pub_counts",
        "pulse",
        "rdy",
        "sample_rate",
        "session",
        "subscription",
    )

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        loop: Any,
        iteration: LoopIteration,
        log: Log,
        broker: Broker,
        limits: Limits,
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log)
        identity, _ = host_and_port(peer)
        self.broker = broker
        self.session = Session(limits, client_id=identity, hostname=identity)
        self.pulse = Pulse(loop, broker.alarms.alarm(self._on_heartbeat))
        self._tls: TlsLayer | None = None
        self._errors: ErrorCharge | None = None
        self._budget = broker.memory
        self._alarm = broker.alarms.alarm(self._on_deadline)
        self.guard: AuthGuard | None = None
        self.early = EarlyAnswers(self.out)
        self.pub_counts: dict[str, int] = defaultdict(int)
        self.subscription = Subscription()
        self.in_flight = InFlightTable()
        self.is_waiting = False
        self.rdy = 0
        self.msg_timeout_ns = self.session.msg_timeout_ms * MS_NS
        self.sample_rate = 0
        self.nearness = GLOBAL
        self.message_count = 0

    @property
    def authorization(self) -> Authorization | None:
        """The client's authorization, or None before AUTH."""
        if self.guard is not None:
            return self.guard.authorization
        return None

    # ---- a publisher

    def publish_failed(self, ticket: int, error: OSError) -> None:
        """Withdraw the answer to a publish that was not written, and all answers after it; send an error and close.

        Publishes may fail in another order than they came, if their topics differ: the error is that of the first one.
        """
        if self.closed or not self.early.withdraw(ticket):
            return
        name, failure = PUBLISH_ERRORS[self.early.kind_of(ticket)]
        self.answer_error(failure(f"{name} failed {error.strerror or error}"))

    # ---- a consumer

    def revoke(self, error: ClientError) -> None:
        """Send no more messages, and close with the error; at once if the client does not read what was sent."""
        self.rdy = 0
        if self._unsent is not None:
            self.abort(str(error))
        else:
            self.answer_error(error)

    def is_in_sample(self) -> bool:
        return random.randrange(100) <= self.sample_rate  # `<=`: as Go's nsqd does

    def capacity(self) -> int:
        """Return the number of messages that may be sent to it now."""
        if self.queued_bytes >= self._budget.window_bytes:
            return 0
        return self.rdy - len(self.in_flight)

    def free_bytes(self) -> int:
        return self._budget.window_bytes - self.queued_bytes

    def send_frames(self, parts: list[frames.Part], size_bytes: int) -> None:
        # These wait, and a view would keep its whole batch in memory.
        if self._unsent is not None or self._holds:
            self.out += map(bytes, parts)
        else:
            self.out += parts
        self.queued_bytes += size_bytes
        self.want_flush()

    def maybe_ready(self) -> None:
        channel = self.subscription.channel
        if channel is not None and not self.is_waiting and self.capacity() > 0:
            channel.client_ready(self)

    def on_drained(self) -> None:
        """Accept messages again when the socket has taken all output."""
        if not self.out:
            self.queued_bytes = 0
            if self.state != CLOSED:
                self.maybe_ready()

    def watch_deadline(self, deadline_ns: int) -> None:
        self._alarm.set_no_later(deadline_ns)

    def _on_deadline(self, now_ns: int) -> None:
        """Requeue in-flight messages that have timed out."""
        channel = self.subscription.channel
        if channel is None or self.closed:
            return
        if channel.expire(self.in_flight, now_ns):
            self.maybe_ready()
        self._alarm.set(self.in_flight.next_deadline_ns)

    # ---- errors

    def answer_error(self, error: ClientError) -> None:
        self.log.of_clients.error("[%s] - %s %s", self.peer, error.code, error)
        self.send(frames.error(error.wire))
        if error.fatal:
            self.close_when_sent()
        else:
            now_s = self.pulse.loop.now()
            if self._errors is None:
                self._errors = ErrorCharge(now_s)
            if self._errors.add(now_s) and not self._errors.is_slow:
                self._errors.is_slow = True
                self.log.of_clients.warning(
                    "client(%s) causes more than %d errors a second, it is served more slowly",
                    self.peer,
                    ERRORS_PER_S,
                )

    def _must_wait(self) -> bool:
        """True if the client has caused too many errors. Its input is then handled by the backlog, more slowly."""
        errors = self._errors
        if errors is None or not errors.is_slow:
            return False
        errors.is_slow = errors.is_over(self.pulse.loop.now())
        if errors.is_slow and self.waits_for < UNREAD:
            self._fall_behind()
            return True
        return False

    def _fall_behind(self, reason: int = UNHANDLED) -> None:
        if self._errors is None or not self._errors.is_slow:
            super()._fall_behind(reason)
            return
        self._wait_for(reason)
        self._iteration.backlog.add_slow(self)

    # ---- layers

    def upgrade(self, upgrades: Upgrades, take_unread: Callable[[], bytes]) -> None:
        """Add the agreed layers; an OK sent through each new layer confirms it.

        `take_unread` returns the received bytes after the last command, which are not handled otherwise.
        """
        self._iteration.end()  # write earlier publishes and send their answers without the new layers
        if self._holds:
            self.close("IDENTIFY asks for an upgrade while a publish before it waits for the disk")
        if self.state >= CLOSING:
            return
        self.session.upgraded = upgrades
        received = take_unread()
        added: Layer | None = None
        for layer in self._layers(upgrades):
            self.add_layer(layer)
            self.send(frames.OK)
            added = layer if added is None else Stacked(added, layer)
        if added is not None and received:  # bytes after the IDENTIFY are already encoded by the new layers
            self._on_encoded(added, received)

    def _layers(self, upgrades: Upgrades) -> Iterator[Layer]:
        if upgrades.tls:
            assert self.broker.tls is not None
            self.log.of_clients.info("PROTOCOL(V2): [%s] upgrading connection to TLS", self.peer)
            from nsqd_py.net.tls import TlsLayer  # imported with the first TLS client: it is slow to import

            self._tls = TlsLayer(self.broker.tls.context)
            self.session.needs_tls = False
            yield self._tls
        if upgrades.snappy:
            from nsqd_py.net.snappy import SnappyLayer  # 1.5 MB of memory

            self.log.of_clients.info("PROTOCOL(V2): [%s] upgrading connection to snappy", self.peer)
            yield SnappyLayer()
        if upgrades.deflate_level:
            level = upgrades.deflate_level
            self.log.of_clients.info(
                "PROTOCOL(V2): [%s] upgrading connection to deflate (level %d)", self.peer, level
            )
            yield DeflateLayer(level)

    @property
    def tls_info(self) -> TlsInfo | None:
        """The negotiated TLS parameters, or None without TLS."""
        return self._tls.info if self._tls is not None else None

    @property
    def uses_snappy(self) -> bool:
        return self.session.upgraded.snappy

    @property
    def uses_deflate(self) -> bool:
        return self.session.upgraded.deflate_level > 0

    # ---- time

    def set_heartbeat(self) -> None:
        interval_ms = self.session.heartbeat_interval_ms
        if interval_ms:
            self.pulse.beat_at(self.broker.clock() + interval_ms * MS_NS)
        else:
            self.pulse.alarm.set(None)

    def _on_heartbeat(self, now_ns: int) -> None:
        """Send a heartbeat. Close a client that sent nothing for two intervals, or took nothing for one."""
        interval_ns = self.session.heartbeat_interval_ms * MS_NS
        if self.closed or not interval_ns:
            return
        pulse = self.pulse
        # Waiting for a slow disk is not silence of the client; the heartbeat goes ahead of its answers.
        if self._holds:
            pulse.hear()
            self.send_before_answers(frames.HEARTBEAT)
            pulse.beat_at(now_ns + interval_ns)
            return
        # The loop was blocked: the client had no heartbeat to answer.
        if now_ns - pulse.due_ns >= interval_ns:
            pulse.hear()
        # Nothing is read from a client in the backlog.
        silent_ns = 0 if self.is_behind else pulse.silent_ns()
        # The loop had no time to read it.
        if silent_ns >= _SILENT_INTERVALS * interval_ns and self._has_input():
            pulse.beat_at(now_ns + _RECHECK_NS)
        elif silent_ns >= _SILENT_INTERVALS * interval_ns:
            self.close("failed to read command - i/o timeout")
        elif self._is_stuck():
            self.close("failed to send - i/o timeout")
        else:
            self.send(frames.HEARTBEAT)
            left_ns = max(MS_NS, _SILENT_INTERVALS * interval_ns - silent_ns)
            pulse.beat_at(now_ns + min(interval_ns, left_ns))

    # ---- the end

    @property
    def buffered_bytes(self) -> int:
        """The bytes of unsent messages and answers."""
        return max(super().buffered_bytes, self.queued_bytes)

    def on_close(self, reason: str) -> None:
        self.log.of_clients.info("PROTOCOL(V2): [%s] exiting ioloop - %s", self.peer, reason)
        self.pulse.alarm.close()
        self._alarm.close()
        if self.guard is not None:
            self.guard.close()
            self.guard = None  # they refer to each other
        if self.session.state == STATE_STANDBY:
            self.broker.replication.detach(self)
        self.broker.clients.pop(self, None)
        self._budget.set_window(len(self.broker.clients))
        left = self.subscription
        if left.channel is not None and left.topic is not None:
            self.broker.client_left(left.topic, left.channel, self)
