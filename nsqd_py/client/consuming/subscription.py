"""A channel as one consumer has it, over any number of nsqds: the part that all consumers share. No I/O.

The shells (`client.threads`, `client.gevent`, `client.aio`) open connections, transfer bytes and messages, and provide
the clock and random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nsqd_py.client.consuming.flow import Backoff, BackoffState, Clock, Duration, Flow, RdySpread, exponential, full_jitter
from nsqd_py.client.consuming.lane import Lane, LaneLimits, LaneStats, RequeueDelays
from nsqd_py.client.message import MessageBatch
from nsqd_py.client.options import FULL_JITTER, ClientOptions
from nsqd_py.protocol import outgoing
from nsqd_py.protocol.incoming import Messages

_STARVED_AT = 0.85  # of RDY, as the client guide recommends, to anticipate starvation


class ConsumerStats(NamedTuple):
    """The figures of a consumer, and its current state.

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
    connections: Mapping[str, LaneStats]


class Subscription:
    """All lanes of a consumer, and their flow."""

    def __init__(
        self,
        topic: str,
        channel: str,
        options: ClientOptions,
        *,
        auto_touch: bool,
        clock: Clock,
        chance: Callable[[], float],
        on_output: Callable[[Lane, bool], None],
        on_backoff: Callable[[str], None],
        make_batch: Callable[[Lane, Messages, float], MessageBatch] = MessageBatch,
    ) -> None:
        """`on_output(lane, is_urgent)` reports output to send, `on_backoff(text)` a change of back-off."""
        self.topic = topic
        self.channel = channel
        self.subscribe = outgoing.sub(topic, channel)  # raises BadName
        self.lanes: dict[str, Lane] = {}
        self.given_up = 0
        self._auto_touch = auto_touch
        self._now_s = clock
        self._on_output = on_output
        self.make_batch = make_batch
        self._delays = RequeueDelays(options.default_requeue_delay_s, options.max_requeue_delay_s)
        self._ended = {"received": 0, "finished": 0, "requeued": 0}  # sums of closed lanes
        self._touched = self._timed_out = self._refused = 0
        spread = RdySpread(options.low_rdy_idle_timeout_s, options.low_rdy_timeout_s)
        backoff = Backoff(_duration(options, chance), options.max_backoff_duration_s)
        interval_s = options.rdy_redistribute_interval_s
        self.flow = Flow(options.max_in_flight, spread, backoff, interval_s, clock, on_backoff)

    def __str__(self) -> str:
        return f"{self.topic}/{self.channel}"

    # ---- what happens

    def opened(self, address: str, limits: LaneLimits) -> Lane:
        """Add a lane: an nsqd has accepted the subscription."""
        names = self.topic, self.channel, address
        lane = Lane(names, limits, self._delays, self.flow, self._now_s(), self._on_output, touches=self._auto_touch)
        self.lanes[address] = lane
        self.flow.opened(lane)
        return lane

    def received(self, lane: Lane, messages: Messages) -> MessageBatch:
        count = len(messages)
        lane.received += count
        lane.last_message_s = now_s = self._now_s()
        batch = self.make_batch(lane, messages, now_s)
        lane.touching.add(batch)
        return batch

    def refused(self, code: str) -> None:
        """Note that nsqd refused an answer: the message is not in flight any more. A late TOUCH does not count."""
        self._refused += code in ("E_FIN_FAILED", "E_REQ_FAILED")

    def closed(self, lane: Lane) -> None:
        if self.lanes.get(lane.address) is lane:
            del self.lanes[lane.address]
        for name in self._ended:
            self._ended[name] += getattr(lane, name)
        lane.close()
        self.flow.closed(lane)

    # ---- time

    @property
    def due_s(self) -> float:
        """Return when `tick` has something to do next."""
        touches = (lane.touching.due_s for lane in self.lanes.values())
        return min([self.flow.due_s, *(due_s for due_s in touches if due_s is not None)])

    def tick(self) -> None:
        now_s = self._now_s()
        self.flow.tick(now_s)
        for lane in self.lanes.values():
            self._look_after(lane, now_s)

    def _look_after(self, lane: Lane, now_s: float) -> None:
        to_touch, expired = lane.touching.look(now_s)
        for batch in to_touch:
            self._touched += batch.open_count
            batch.touch()
        for batch in expired:
            self._timed_out += batch.open_count
            batch.is_live = False

    # ---- how it stands

    @property
    def in_flight(self) -> int:
        return sum(lane.in_flight for lane in self.lanes.values())

    @property
    def is_starved(self) -> bool:
        """True if some nsqd can send little or nothing before more messages are answered."""
        return any(lane.in_flight > 0 and lane.in_flight >= lane.rdy * _STARVED_AT for lane in self.lanes.values())

    def stats(self) -> ConsumerStats:
        now_s = self._now_s()
        sums = {name: ended + sum(getattr(lane, name) for lane in self.lanes.values()) for name, ended in self._ended.items()}
        return ConsumerStats(
            **sums,
            touched=self._touched,
            timed_out=self._timed_out,
            refused=self._refused,
            given_up=self.given_up,
            in_flight=self.in_flight,
            max_in_flight=self.flow.max_in_flight,
            is_paused=self.flow.is_paused,
            backoff=self.flow.state(now_s),
            connections={address: lane.stats(now_s) for address, lane in self.lanes.items()},
        )


def _duration(options: ClientOptions, chance: Callable[[], float]) -> Duration:
    if options.backoff_strategy == FULL_JITTER:
        return full_jitter(options.backoff_multiplier_s, chance)
    return exponential(options.backoff_multiplier_s)
