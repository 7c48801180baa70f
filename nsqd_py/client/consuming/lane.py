"""One nsqd's part in a subscription: what it is asked for, what is in flight from it, what goes to it next. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from nsqd_py.protocol import outgoing

if TYPE_CHECKING:
    from nsqd_py.client.consuming.flow import Flow
    from nsqd_py.client.message import MessageBatch

_TOUCH_AT = 0.6  # of the time-out: early enough for a late tick and a slow network


class Timed(Protocol):
    """A batch of messages that came together."""

    arrived_s: float
    due_s: float


Batch = TypeVar("Batch", bound=Timed)


class Touching(Generic[Batch]):
    """The unanswered batches of one connection, in the order in which something is to be done about them.

    As all have the same time-out, that is the order in which they came or were touched last.
    """

    __slots__ = ("_batches", "_is_automatic", "_most_s", "timeout_s")

    def __init__(self, timeout_s: float, most_s: float, *, is_automatic: bool) -> None:
        self.timeout_s = timeout_s
        self._most_s = max(timeout_s, most_s)
        self._is_automatic = is_automatic
        self._batches: dict[Batch, None] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def add(self, batch: Batch) -> None:
        """It came at its `arrived_s`."""
        batch.due_s = batch.arrived_s + self.timeout_s * (_TOUCH_AT if self._is_automatic else 1.0)
        self._batches[batch] = None

    def discard(self, batch: Batch) -> None:
        """It is answered."""
        self._batches.pop(batch, None)

    def touched(self, batch: Batch, now_s: float) -> None:
        """Its messages, or some of them, have the whole time-out again."""
        if batch not in self._batches:
            return
        del self._batches[batch]
        next_s = now_s + self.timeout_s * (_TOUCH_AT if self._is_automatic else 1.0)
        batch.due_s = min(next_s, batch.arrived_s + self._most_s)
        self._batches[batch] = None

    def clear(self) -> None:
        self._batches.clear()

    @property
    def due_s(self) -> float | None:
        """When the first batch is to be looked at; None: there is none."""
        return next((batch.due_s for batch in self._batches), None)

    def look(self, now_s: float) -> tuple[list[Batch], list[Batch]]:
        """Those to touch now, and those that have timed out, which are forgotten."""
        to_touch: list[Batch] = []
        expired: list[Batch] = []
        for batch in self._batches:
            if batch.due_s > now_s:
                break
            is_late = now_s >= batch.arrived_s + self._most_s
            (to_touch if self._is_automatic and not is_late else expired).append(batch)
        for batch in expired:
            del self._batches[batch]
        return to_touch, expired


class LaneLimits(NamedTuple):
    """What nsqd said that it allows this connection."""

    max_rdy: int
    msg_timeout_s: float
    max_msg_timeout_s: float


class RequeueDelays(NamedTuple):
    """How long a message waits that is requeued without a delay: longer with each attempt, as in go-nsq."""

    default_s: float
    most_s: float

    def after(self, attempts: int) -> float:
        return min(self.default_s * attempts, self.most_s)


class LaneStats(NamedTuple):
    """What one connection has done; `idle_s` is the time since a message came from it, or since it was opened."""

    rdy: int
    in_flight: int
    received: int
    finished: int
    requeued: int
    idle_s: float


class Lane:
    """What is said gathers here, until the shell takes it as one piece; `on_output(lane)` tells when there is some.

    Answers to messages of a lane that is closed are dropped: those messages time out at nsqd, and come again.
    """

    __slots__ = (
        "_commands", "_fins", "_on_output", "address", "channel", "delays", "finished", "flow", "has_output",
        "in_flight", "is_open", "last_message_s", "max_rdy", "rdy", "rdy_since_s", "received", "requeued", "topic",
        "touching",
    )  # fmt: skip

    def __init__(
        self,
        names: tuple[str, str, str],
        limits: LaneLimits,
        delays: RequeueDelays,
        flow: Flow,
        now_s: float,
        on_output: Callable[[Lane, bool], None],
        *,
        touches: bool,
    ) -> None:
        """`names` are topic, channel and address; `touches`: what is not answered is touched in time."""
        self.topic, self.channel, self.address = names
        self.max_rdy = limits.max_rdy
        self.delays = delays
        self.flow = flow
        self.touching: Touching[MessageBatch] = Touching(
            limits.msg_timeout_s, limits.max_msg_timeout_s, is_automatic=touches
        )
        self.is_open = True
        self.rdy = self.in_flight = self.received = self.finished = self.requeued = 0
        self.rdy_since_s = self.last_message_s = now_s
        self._on_output = on_output
        self._fins: list[bytes] = []
        self._commands: list[bytes] = []
        self.has_output = False

    # ---- what goes to nsqd

    def ask_for(self, rdy: int, now_s: float) -> None:
        self.rdy = rdy
        self.rdy_since_s = now_s
        self.say(outgoing.rdy(rdy))

    def say(self, command: bytes) -> None:
        self._commands.append(command)
        if not self.has_output:
            self._announce()

    def finish_one(self, message_id: bytes) -> None:
        self.finished += 1
        self._fins.append(message_id)
        if not self.has_output:
            self._announce()
        if self.flow.is_held_back:
            self.flow.succeeded()

    def finish(self, ids: Collection[bytes]) -> None:
        self.finished += len(ids)
        self._fins += ids
        if not self.has_output:
            self._announce()
        if self.flow.is_held_back:
            self.flow.succeeded()

    def requeue(self, message_id: bytes, delay_s: float, *, backoff: bool) -> None:
        self.requeued += 1
        self.say(outgoing.req(message_id, round(delay_s * 1000)))
        if backoff:
            self.flow.failed()
        else:
            self.flow.continued()

    def touch(self, ids: Collection[bytes]) -> None:
        self._commands.append(outgoing.touches(ids))
        self._announce(is_urgent=True)

    def _announce(self, *, is_urgent: bool = False) -> None:
        self.has_output = True
        self._on_output(self, is_urgent)

    def take_output(self) -> bytes:
        """All that was said since the last time. FINs come first: they make room for what RDY asks for."""
        fins, self._fins = self._fins, []
        commands, self._commands = self._commands, []
        self.has_output = False
        return outgoing.fins(fins) + b"".join(commands)

    # ---- its end

    def close(self) -> None:
        """The connection has ended; what was in flight comes again once it has timed out at nsqd."""
        self.is_open = False
        self.rdy = self.in_flight = 0
        self.touching.clear()

    def stats(self, now_s: float) -> LaneStats:
        return LaneStats(
            self.rdy, self.in_flight, self.received, self.finished, self.requeued, max(0.0, now_s - self.last_message_s)
        )
