"""One nsqd's part of a subscription: its RDY, its messages in flight with their touches, and the output to it. No I/O.

The client guide warns of clients that touch automatically, since a handler that hangs would keep its message forever.
nsqd's `max_msg_timeout` limits that, and nothing is touched beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from nsqd_py.protocol import outgoing

if TYPE_CHECKING:
    from nsqd_py.client.consuming.flow import Flow
    from nsqd_py.client.message import MessageBatch

_TOUCH_AT = 0.6  # part of the time-out, early enough for a late tick and a slow network

# The number of messages that nsqd may have in flight on a connection, as this side counts them.
_TIMES_RDY = 4
_MORE_THAN_RDY = 100


class Timed(Protocol):
    """A batch of messages that arrived together."""

    arrived_s: float
    due_s: float


Batch = TypeVar("Batch", bound=Timed)


class Touching(Generic[Batch]):
    """The unanswered batches of one connection, ordered by when they need attention.

    All have the same time-out, so that is the order in which they arrived or were last touched.
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
        """Add a batch that came at its `arrived_s`."""
        batch.due_s = batch.arrived_s + self.timeout_s * (_TOUCH_AT if self._is_automatic else 1.0)
        self._batches[batch] = None

    def discard(self, batch: Batch) -> None:
        """Remove a batch that is answered."""
        self._batches.pop(batch, None)

    def touched(self, batch: Batch, now_s: float) -> None:
        """Note a touch: the batch, or part of it, has its whole time-out again."""
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
        """Return when the first batch needs attention; None if there is none."""
        return next((batch.due_s for batch in self._batches), None)

    def look(self, now_s: float) -> tuple[list[Batch], list[Batch]]:
        """Return the batches to touch now, and those that have timed out, which are removed."""
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
    """The limits that nsqd set for this connection."""

    max_rdy: int
    msg_timeout_s: float
    max_msg_timeout_s: float


class RequeueDelays(NamedTuple):
    """The delays of messages that are requeued without one: longer with each attempt, as in go-nsq."""

    default_s: float
    most_s: float

    def after(self, attempts: int) -> float:
        return min(self.default_s * attempts, self.most_s)


class LaneStats(NamedTuple):
    """The figures of one connection. `idle_s` is the time since its last message, or since it was opened."""

    rdy: int
    in_flight: int
    received: int
    finished: int
    requeued: int
    idle_s: float


class Lane:
    """Collects output until the shell takes it all; `on_output(lane)` reports when there is some.

    Answers to messages of a closed lane are dropped: those messages time out at nsqd, and come again.
    """

    __slots__ = (
        "_commands",
        "_fins",
        "_forgotten",
        "_on_output",
        "_taken_fins",
        "address",
        "channel",
        "delays",
        "flow",
        "has_output",
        "is_open",
        "last_message_s",
        "max_rdy",
        "most_rdy",
        "rdy",
        "rdy_since_s",
        "received",
        "requeued",
        "topic",
        "touching",
    )

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
        """`names` are topic, channel and address. With `touches`, unanswered messages are touched in time."""
        self.topic, self.channel, self.address = names
        self.max_rdy = limits.max_rdy
        self.delays = delays
        self.flow = flow
        self.touching: Touching[MessageBatch] = Touching(limits.msg_timeout_s, limits.max_msg_timeout_s, is_automatic=touches)
        self.is_open = True
        self.rdy = self.most_rdy = self.received = self.requeued = 0
        self._forgotten = 0  # messages that were received and not answered, because they have timed out
        self.rdy_since_s = self.last_message_s = now_s
        self._on_output = on_output
        self._fins: list[bytes] = []
        self._taken_fins = 0
        self._commands: list[bytes] = []
        self.has_output = False

    @property
    def in_flight(self) -> int:
        """Return how many messages are not answered, and not timed out."""
        return sum(batch.open_count for batch in self.touching)

    @property
    def finished(self) -> int:
        """Return how many messages were finished."""
        return self._taken_fins + len(self._fins)

    def expects(self, count: int) -> bool:
        """True if nsqd may have sent `count` more messages.

        nsqd may count fewer in flight than this side: it sends messages again whose time-out this side, which may have
        been suspended, does not know of yet.
        """
        most = _TIMES_RDY * self.most_rdy + _MORE_THAN_RDY
        unanswered = self.received - self.finished - self.requeued
        if unanswered - self._forgotten + count <= most:
            return True
        in_flight = self.in_flight  # takes long with many batches
        self._forgotten = unanswered - in_flight
        return in_flight + count <= most

    # ---- what goes to nsqd

    def ask_for(self, rdy: int, now_s: float) -> None:
        self.rdy = rdy
        self.most_rdy = max(rdy, self.most_rdy)
        self.rdy_since_s = now_s
        self.say(outgoing.rdy(rdy))

    def say(self, command: bytes) -> None:
        self._commands.append(command)
        if not self.has_output:
            self._announce()

    def finish_one(self, message_id: bytes) -> None:
        """Add the FIN of one message. Does not report it to the flow."""
        self._fins.append(message_id)
        if not self.has_output:
            self._announce()

    def finish(self, ids: Collection[bytes]) -> None:
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
        """Return all output since the last call. FINs come first: they make room for what RDY requests."""
        self.has_output = False  # first: another thread may add a FIN meanwhile, and then announces it
        fins = self._fins[:]
        del self._fins[: len(fins)]
        self._taken_fins += len(fins)
        commands, self._commands = self._commands, []
        return outgoing.fins(fins) + b"".join(commands)

    # ---- its end

    def close(self) -> None:
        """Note that the connection has ended. Messages in flight come again after their time-out at nsqd."""
        self.is_open = False
        self.rdy = 0
        for batch in self.touching:
            batch.is_live = False
        self.touching.clear()

    def stats(self, now_s: float) -> LaneStats:
        return LaneStats(
            self.rdy, self.in_flight, self.received, self.finished, self.requeued, max(0.0, now_s - self.last_message_s)
        )
