"""A client as topics and channels see it: a publisher and a consumer, with what it has in flight."""

from __future__ import annotations

import random
import socket
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from nsqd_py.broker.broker import Broker
from nsqd_py.errors import ClientError, DpubFailed, MpubFailed, PubFailed
from nsqd_py.net.loop_iteration import LoopIteration
from nsqd_py.net.transport import EarlyAnswers
from nsqd_py.protocol import frames
from nsqd_py.protocol.commands import DPUB, MPUB, PUB
from nsqd_py.protocol.session import STATE_STANDBY, Limits
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.in_flight import InFlightTable
from nsqd_py.queue.position import GLOBAL
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.logs import Log
from nsqd_py.tcp.client_stream import MS_NS, ClientStream

if TYPE_CHECKING:
    from nsqd_py.auth.guard import AuthGuard, Step
    from nsqd_py.auth.permissions import Authorization

PUBLISH_ERRORS: dict[int, tuple[str, type[ClientError]]] = {
    PUB: ("PUB", PubFailed),
    MPUB: ("MPUB", MpubFailed),
    DPUB: ("DPUB", DpubFailed),
}


class Client(ClientStream):
    """A producer or consumer. Topics use it as a `Publisher`, its channel as a `Consumer`.

    has_turn  True while it creates a topic or channel, for which it has waited
    """

    __slots__ = (
        "_alarm",
        "_budget",
        "_failed_ticket",
        "channel",
        "connect_time",
        "early",
        "finish_count",
        "guard",
        "has_turn",
        "in_flight",
        "is_waiting",
        "message_count",
        "msg_timeout_ns",
        "nearness",
        "pub_counts",
        "rdy",
        "requeue_count",
        "sample_rate",
        "topic",
    )

    def __init__(
        self, sock: socket.socket, peer: str, loop: Any, iteration: LoopIteration, log: Log, broker: Broker, limits: Limits
    ) -> None:
        super().__init__(sock, peer, loop, iteration, log, broker, limits)
        self._budget = broker.memory
        self._alarm = broker.alarms.alarm(self._on_deadline)
        self.guard: AuthGuard | None = None
        self.has_turn = False
        self.early = EarlyAnswers(self.out)
        self._failed_ticket = sys.maxsize
        self.pub_counts: dict[str, int] = defaultdict(int)
        self.topic: Topic | None = None
        self.channel: Channel | None = None
        self.in_flight = InFlightTable()
        self.is_waiting = False
        self.rdy = 0
        self.msg_timeout_ns = self.session.msg_timeout_ms * MS_NS
        self.sample_rate = 0
        self.nearness = GLOBAL
        self.message_count = 0
        self.finish_count = 0
        self.requeue_count = 0
        self.connect_time = time.time()

    # ---- authorization

    def require_auth(self, guard: AuthGuard) -> None:
        """Restrict the client to what `guard` permits. Call it before `start`."""
        self.guard = guard

    @property
    def authorization(self) -> Authorization | None:
        """The client's authorization, or None before AUTH."""
        return self.guard.authorization if self.guard is not None else None

    def pause(self) -> None:
        """Neither read, execute commands nor send until `go_on`."""
        raise NotImplementedError

    def go_on(self, step: Step) -> None:
        """End the pause: call `step`, which may raise ClientError, then execute the commands after it."""
        raise NotImplementedError

    # ---- a publisher

    def publish_failed(self, ticket: int, error: OSError) -> None:
        """Withdraw the answer to a publish that was not written, and all answers after it; send an error and close.

        Publishes may fail in another order than they came, if their topics differ: the error is that of the first one.
        """
        if self.closed or ticket >= self._failed_ticket:
            return
        self._failed_ticket = ticket
        self.early.withdraw(ticket)
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
        if self.queued_bytes >= self._budget.room_bytes:
            return 0
        return self.rdy - len(self.in_flight)

    def room_bytes(self) -> int:
        return self._budget.room_bytes - self.queued_bytes

    def send_frames(self, parts: list[frames.Part], size_bytes: int) -> None:
        if self._unsent is not None or self._holds:  # these wait, and a view would keep its whole batch in memory
            self.out += map(bytes, parts)
        else:
            self.out += parts
        self.queued_bytes += size_bytes
        self.want_flush()

    def maybe_ready(self) -> None:
        if not self.is_waiting and self.channel is not None and self.capacity() > 0:
            self.channel.client_ready(self)

    def on_drained(self) -> None:
        """Accept messages again when the socket has taken all output."""
        if not self.out:
            self.queued_bytes = 0
            if not self.closed:
                self.maybe_ready()

    def watch_deadline(self, deadline_ns: int) -> None:
        self._alarm.set_no_later(deadline_ns)

    def _on_deadline(self, now_ns: int) -> None:
        """Requeue in-flight messages that have timed out."""
        channel = self.channel
        if channel is None or self.closed:
            return
        if channel.expire(self.in_flight, now_ns):
            self.maybe_ready()
        self._alarm.set(self.in_flight.next_deadline_ns)

    @property
    def buffered_bytes(self) -> int:
        """The bytes of unsent messages and answers."""
        return max(super().buffered_bytes, self.queued_bytes)

    def on_close(self, reason: str) -> None:
        self.log.of_clients.info("PROTOCOL(V2): [%s] exiting ioloop - %s", self.peer, reason)
        self._heartbeat.close()
        self._alarm.close()
        if self.guard is not None:
            self.guard.close()
            self.guard = None  # they refer to each other
        if self.session.state == STATE_STANDBY:
            self.broker.replication.detach(self)
        self.broker.clients.pop(self, None)
        self._budget.share_room(len(self.broker.clients))
        channel, topic = self.channel, self.topic
        if channel is not None and topic is not None:
            self.broker.client_left(topic, channel, self)
