"""One channel as a consumer has it, over any number of nsqds, and the messages in flight from each. No I/O.

The client guide warns of clients that touch automatically, since a handler that hangs would keep its message forever.
nsqd's `max_msg_timeout` limits that, and nothing is touched beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import NamedTuple

from nsqd_py.client.consuming.flow import BackoffState, ConsumerBackoff, RdySpread, exponential, full_jitter
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import FULL_JITTER, ClientOptions
from nsqd_py.client.session import Negotiated
from nsqd_py.protocol import outgoing
from nsqd_py.protocol.incoming import IncomingMessages

_TOUCH_AT = 0.6  # part of the time-out, early enough for a late tick and a slow network

# The number of messages that nsqd may have in flight on a connection, as this side counts them.
_TIMES_RDY = 4
_MORE_THAN_RDY = 100

_STARVED_AT = 0.85  # of RDY, as the client guide recommends, to anticipate starvation
_SUMS = ("received", "finished", "requeued")


class ConnectionStats(NamedTuple):
    """The statistics of one connection. `idle_s` is the time since its last message, or since it was opened."""

    rdy: int
    in_flight: int
    received: int
    finished: int
    requeued: int
    idle_s: float


class InFlightWindow:
    """The in-flight messages of one connection. It collects output until the shell takes it all.

    Answers to messages of a closed window are dropped: those messages time out at nsqd, and are redelivered.
    All batches have the same time-out, so they stand in the order in which they arrived or were last touched.
    """

    def __init__(self, subscription: Subscription, address: str, negotiated: Negotiated) -> None:
        self.topic, self.channel, self.address = subscription.topic, subscription.channel, address
        self.lock = subscription.lock
        self.subscription = subscription
        self.http_port = negotiated.http_port
        self.max_rdy = negotiated.max_rdy_count
        self.msg_timeout_s = negotiated.msg_timeout_s
        self.max_msg_timeout_s = max(negotiated.msg_timeout_s, negotiated.max_msg_timeout_s)
        self.is_open = True
        self.rdy = 0
        self.most_rdy = 0
        self.received = 0
        self.requeued = 0
        self.rdy_since_s = self.last_message_s = subscription.now_s()
        self.has_output = False
        self._batches: dict[MessageBatch, None] = {}
        self._forgotten = 0  # messages that were received and not answered, because they have timed out
        self._fins: list[bytes] = []
        self._taken_fins = 0
        self._commands: list[bytes] = []

    # ---- messages in flight

    @property
    def in_flight(self) -> int:
        """Return how many messages are not answered, and not timed out."""
        return sum(batch.open_count for batch in self._batches)

    @property
    def is_empty(self) -> bool:
        return not self._batches

    @property
    def finished(self) -> int:
        """Return how many messages were finished."""
        return self._taken_fins + len(self._fins)

    def expects(self, count: int) -> bool:
        """True if nsqd may have sent `count` more messages.

        nsqd may count fewer in flight than this side: it resends messages whose time-out this side, which may have
        been suspended, does not know of yet.
        """
        most = _TIMES_RDY * self.most_rdy + _MORE_THAN_RDY
        unanswered = self.received - self.finished - self.requeued
        if unanswered - self._forgotten + count <= most:
            return True
        in_flight = self.in_flight  # takes long with many batches
        self._forgotten = unanswered - in_flight
        return in_flight + count <= most

    def add(self, messages: IncomingMessages) -> MessageBatch:
        """Return a batch of messages that came now."""
        now_s = self.subscription.now_s()
        batch = MessageBatch(self, messages, now_s)
        self.received += len(batch)
        self.last_message_s = now_s
        self._set_due(batch, now_s)
        return batch

    def answered(self, batch: MessageBatch) -> None:
        """Remove a batch whose messages are all answered."""
        self._batches.pop(batch, None)

    def _set_due(self, batch: MessageBatch, now_s: float) -> None:
        next_s = now_s + self.msg_timeout_s * (_TOUCH_AT if self.subscription.auto_touch else 1.0)
        batch.due_s = min(next_s, batch.arrived_s + self.max_msg_timeout_s)
        self._batches[batch] = None

    @property
    def due_s(self) -> float:
        """Return when the first batch needs attention; infinity if there is none."""
        return next((batch.due_s for batch in self._batches), float("inf"))

    def take_due(self, now_s: float) -> tuple[list[MessageBatch], list[MessageBatch]]:
        """Return the batches to touch now, and those that have timed out, which are removed.

        A touch that is this late, because the process or its I/O thread did not run, is of no use: the time-out was over at
        nsqd before.
        """
        to_touch: list[MessageBatch] = []
        expired: list[MessageBatch] = []
        margin_s = self.msg_timeout_s * (1 - _TOUCH_AT)
        for batch in self._batches:
            if batch.due_s > now_s:
                break
            is_late = now_s >= min(batch.arrived_s + self.max_msg_timeout_s, batch.due_s + margin_s)
            (to_touch if self.subscription.auto_touch and not is_late else expired).append(batch)
        for batch in expired:
            del self._batches[batch]
            batch.is_live = False
        return to_touch, expired

    # ---- output to nsqd

    def ask_for(self, rdy: int, now_s: float) -> None:
        self.rdy = rdy
        self.most_rdy = max(rdy, self.most_rdy)
        self.rdy_since_s = now_s
        self.say(outgoing.rdy(rdy))

    def say(self, command: bytes) -> None:
        self._commands.append(command)
        self._announce()

    def finish_one(self, message_id: bytes) -> None:
        """Add the FIN of one message. Does not report it as a success."""
        self._fins.append(message_id)
        if not self.has_output:
            self._announce()

    def finish(self, ids: Collection[bytes]) -> None:
        self._fins += ids
        self._announce()
        self.succeeded()

    def succeeded(self) -> None:
        """Report a success, during back-off."""
        if self.subscription.reports_success:
            self.subscription.succeeded()

    def requeue(self, message_id: bytes, attempts: int, delay_ms: int | None, *, backoff: bool) -> None:
        """Add a REQ. Without a delay, that is longer with each attempt, as in go-nsq."""
        self.requeued += 1
        if delay_ms is None:
            default_s, most_s = self.subscription.requeue_delays_s
            delay_ms = round(min(default_s * attempts, most_s) * 1000)
        self.say(outgoing.req(message_id, delay_ms))
        if backoff:
            self.subscription.failed()
        else:
            self.subscription.continued()

    def touch(self, batch: MessageBatch, ids: Collection[bytes]) -> None:
        """Add TOUCHes. The batch, even if only a part of it is touched, has its whole time-out again."""
        if batch in self._batches:
            del self._batches[batch]
            self._set_due(batch, self.subscription.now_s())
        self.say(outgoing.touches(ids))

    def _announce(self) -> None:
        if not self.has_output:
            self.has_output = True
            self.subscription.on_output()

    def take_output(self) -> bytes:
        """Return all output since the last call. FINs come first: they make room for what RDY requests."""
        self.has_output = False  # first: another thread may add a FIN in the meantime, and then announces it
        fins = self._fins[:]
        del self._fins[: len(fins)]
        self._taken_fins += len(fins)
        commands, self._commands = self._commands, []
        return outgoing.fins(fins) + b"".join(commands)

    # ---- its end

    def close(self) -> None:
        """Note that the connection has ended. Messages in flight are redelivered after their time-out at nsqd."""
        self.is_open = False
        self.rdy = 0
        for batch in self._batches:
            batch.is_live = False
        self._batches.clear()

    def stats(self, now_s: float) -> ConnectionStats:
        idle_s = max(0.0, now_s - self.last_message_s)
        return ConnectionStats(self.rdy, self.in_flight, self.received, self.finished, self.requeued, idle_s)


class ConsumerStats(NamedTuple):
    """The statistics of a consumer, and its current state.

    received, finished, requeued   messages; a message that is redelivered is received again
    touched                        automatic touches of messages
    timed_out                      messages not answered before their time-out
    refused                        answers that nsqd refused, mostly because the message had timed out there
    given_up                       messages finished because they came more than max_attempts times
    in_flight                      messages received and not answered yet
    connections                    the open connections, by address
    """

    received: int
    finished: int
    requeued: int
    touched: int
    timed_out: int
    refused: int
    given_up: int
    in_flight: int
    max_in_flight: int
    is_paused: bool
    backoff: BackoffState
    connections: Mapping[str, ConnectionStats]


@dataclass(eq=False, repr=False)
class Subscription:
    """The in-flight windows of a consumer, and how many messages each may request.

    now_s             the clock
    on_output         reports output to send
    on_backoff        reports a change of back-off
    lock              taken by those who answer messages
    reports_success   True if a success must be reported now: checked for each message, so that most need not be
    requeue_delays_s  the delay of a first attempt without one, and the longest
    """

    topic: str
    channel: str
    options: InitVar[ClientOptions]
    _: KW_ONLY
    auto_touch: bool
    now_s: Callable[[], float]
    chance: InitVar[Callable[[], float]]
    on_output: Callable[[], None]
    on_backoff: Callable[[str], None]
    lock: AbstractContextManager[object]

    def __post_init__(self, options: ClientOptions, chance: Callable[[], float]) -> None:
        self.subscribe = outgoing.sub(self.topic, self.channel)  # raises BadName
        self.windows: dict[str, InFlightWindow] = {}
        self.given_up = 0
        self.max_in_flight = options.max_in_flight
        self.is_paused = False
        self.reports_success = False
        self.requeue_delays_s = options.default_requeue_delay_s, options.max_requeue_delay_s
        self._ended = dict.fromkeys(_SUMS, 0)  # of closed windows
        self._touched = 0
        self._timed_out = 0
        self._refused = 0
        self._spread = RdySpread(options.low_rdy_idle_timeout_s, options.low_rdy_timeout_s)
        self._redistribute_s = options.rdy_redistribute_interval_s
        self._next_turns_s = self.now_s() + self._redistribute_s
        multiplier_s = options.backoff_multiplier_s
        is_random = options.backoff_strategy == FULL_JITTER
        if is_random:
            duration = full_jitter(multiplier_s, chance)
        else:
            duration = exponential(multiplier_s)
        self._backoff = ConsumerBackoff(duration, options.max_backoff_duration_s)

    def __str__(self) -> str:
        return f"{self.topic}/{self.channel}"

    # ---- events of a connection

    def opened(self, address: str, negotiated: Negotiated) -> InFlightWindow:
        """Add a window: an nsqd has accepted the subscription."""
        window = InFlightWindow(self, address, negotiated)
        self.windows[address] = window
        self._spread.add(window)
        self._distribute_rdy()
        return window

    def refused(self, code: str) -> None:
        """Note that nsqd refused an answer: the message is not in flight any more. A late TOUCH does not count."""
        self._refused += code in ("E_FIN_FAILED", "E_REQ_FAILED")

    def closed(self, window: InFlightWindow) -> None:
        if self.windows.get(window.address) is window:
            del self.windows[window.address]
        for name in _SUMS:
            self._ended[name] += getattr(window, name)
        window.close()
        self._spread.remove(window)
        self._distribute_rdy()

    # ---- how many messages to request

    def set_max_in_flight(self, count: int) -> None:
        self.max_in_flight = count
        self._distribute_rdy()

    def pause(self, *, is_paused: bool = True) -> None:
        """Request no messages, or continue."""
        self.is_paused = is_paused
        self._distribute_rdy()

    def succeeded(self) -> None:
        self._note(self._backoff.succeeded(self.now_s()))

    def failed(self) -> None:
        self._note(self._backoff.failed(self.now_s()))

    def gave_up(self) -> None:
        """Count a message that came too often. Any thread may call this."""
        with self.lock:
            self.given_up += 1

    def continued(self) -> None:
        """Count a message that was requeued without a failure."""
        self._note(self._backoff.continued(self.now_s()))

    def _note(self, has_changed: bool) -> None:
        if has_changed:
            self.reports_success = self._backoff.level > 0
            self._distribute_rdy()
            self.on_backoff(str(self._backoff))

    def _distribute_rdy(self) -> None:
        if self.is_paused:
            most = 0
        else:
            most = self._backoff.most(self.max_in_flight)
        self._spread.distribute(most, self.now_s())

    # ---- time

    @property
    def due_s(self) -> float:
        """Return when `tick` has something to do next."""
        if self._backoff.until_s is None:
            until_s = self._next_turns_s
        else:
            until_s = self._backoff.until_s
        return min([self._next_turns_s, until_s, *(window.due_s for window in self.windows.values())])

    def tick(self) -> None:
        """Change RDY, and touch what is due."""
        now_s = self.now_s()
        self._note(self._backoff.expire(now_s))
        if now_s >= self._next_turns_s:
            self._next_turns_s = now_s + self._redistribute_s
            self._spread.change_turns(now_s)
        for window in self.windows.values():
            to_touch, expired = window.take_due(now_s)
            self._timed_out += sum(batch.open_count for batch in expired)
            for batch in to_touch:
                self._touched += batch.open_count
                batch.touch()

    # ---- statistics

    @property
    def in_flight(self) -> int:
        return sum(window.in_flight for window in self.windows.values())

    @property
    def is_starved(self) -> bool:
        """True if some nsqd can send little or nothing before more messages are answered."""
        return any(
            window.in_flight > 0 and window.in_flight >= window.rdy * _STARVED_AT
            for window in self.windows.values()
        )

    def stats(self) -> ConsumerStats:
        now_s = self.now_s()
        windows = self.windows.values()
        return ConsumerStats(
            **{
                name: ended + sum(getattr(window, name) for window in windows)
                for name, ended in self._ended.items()
            },
            touched=self._touched,
            timed_out=self._timed_out,
            refused=self._refused,
            given_up=self.given_up,
            in_flight=self.in_flight,
            max_in_flight=self.max_in_flight,
            is_paused=self.is_paused,
            backoff=self._backoff.state(now_s),
            connections={address: window.stats(now_s) for address, window in self.windows.items()},
        )
