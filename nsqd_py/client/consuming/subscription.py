"""One channel as a consumer has it, over any number of nsqds: the part that all consumers share. No I/O.

The shells (`client.blocking`, `client.aio`) open connections, transfer bytes and messages, and provide the clock and
random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nsqd_py.client.consuming.flow import Backoff, BackoffState, Clock, Flow, RdySpread, exponential, full_jitter
from nsqd_py.client.consuming.in_flight import ConnectionStats, InFlightWindow
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import FULL_JITTER, ClientOptions
from nsqd_py.client.session import Negotiated
from nsqd_py.protocol import outgoing
from nsqd_py.protocol.incoming import Messages

_STARVED_AT = 0.85  # of RDY, as the client guide recommends, to anticipate starvation
_SUMS = ("received", "finished", "requeued")


class ConsumerStats(NamedTuple):
    """The statistics of a consumer, and its current state.

    received, finished, requeued   messages; a message that is delivered again is received again
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


class Subscription:
    """The in-flight windows of a consumer, and their flow."""

    def __init__(
        self,
        topic: str,
        channel: str,
        options: ClientOptions,
        *,
        auto_touch: bool,
        clock: Clock,
        chance: Callable[[], float],
        on_output: Callable[[], None],
        on_backoff: Callable[[str], None],
    ) -> None:
        """`on_output()` reports output to send, `on_backoff(text)` a change of back-off."""
        self.topic = topic
        self.channel = channel
        self.subscribe = outgoing.sub(topic, channel)  # raises BadName
        self.windows: dict[str, InFlightWindow] = {}
        self.given_up = 0
        self.make_batch: Callable[[InFlightWindow, Messages, float], MessageBatch] = MessageBatch
        self._auto_touch = auto_touch
        self._now_s = clock
        self._on_output = on_output
        self._delays_s = options.default_requeue_delay_s, options.max_requeue_delay_s
        self._ended = dict.fromkeys(_SUMS, 0)  # of closed windows
        self._touched = self._timed_out = self._refused = 0
        spread = RdySpread(options.low_rdy_idle_timeout_s, options.low_rdy_timeout_s)
        multiplier_s = options.backoff_multiplier_s
        is_random = options.backoff_strategy == FULL_JITTER
        duration = full_jitter(multiplier_s, chance) if is_random else exponential(multiplier_s)
        backoff = Backoff(duration, options.max_backoff_duration_s)
        self.flow = Flow(options.max_in_flight, spread, backoff, options.rdy_redistribute_interval_s, clock, on_backoff)

    def __str__(self) -> str:
        return f"{self.topic}/{self.channel}"

    # ---- events of a connection

    def opened(self, address: str, negotiated: Negotiated) -> InFlightWindow:
        """Add a window: an nsqd has accepted the subscription."""
        names = self.topic, self.channel, address
        window = InFlightWindow(
            names, negotiated, self._delays_s, self.flow, self._now_s(), self._on_output, touches=self._auto_touch
        )
        self.windows[address] = window
        self.flow.opened(window)
        return window

    def received(self, window: InFlightWindow, messages: Messages) -> MessageBatch:
        batch = self.make_batch(window, messages, self._now_s())
        window.add(batch)
        return batch

    def refused(self, code: str) -> None:
        """Note that nsqd refused an answer: the message is not in flight any more. A late TOUCH does not count."""
        self._refused += code in ("E_FIN_FAILED", "E_REQ_FAILED")

    def closed(self, window: InFlightWindow) -> None:
        if self.windows.get(window.address) is window:
            del self.windows[window.address]
        for name in _SUMS:
            self._ended[name] += getattr(window, name)
        window.close()
        self.flow.closed(window)

    # ---- time

    @property
    def due_s(self) -> float:
        """Return when `tick` has something to do next."""
        return min([self.flow.due_s, *(window.due_s for window in self.windows.values())])

    def tick(self) -> None:
        """Change RDY, and touch what is due."""
        now_s = self._now_s()
        self.flow.tick(now_s)
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
        return any(window.in_flight > 0 and window.in_flight >= window.rdy * _STARVED_AT for window in self.windows.values())

    def stats(self) -> ConsumerStats:
        now_s = self._now_s()
        windows = self.windows.values()
        return ConsumerStats(
            **{name: ended + sum(getattr(window, name) for window in windows) for name, ended in self._ended.items()},
            touched=self._touched,
            timed_out=self._timed_out,
            refused=self._refused,
            given_up=self.given_up,
            in_flight=self.in_flight,
            max_in_flight=self.flow.max_in_flight,
            is_paused=self.flow.is_paused,
            backoff=self.flow.state(now_s),
            connections={address: window.stats(now_s) for address, window in self.windows.items()},
        )
