"""Sends batches until nsqd has acknowledged them: again where it is down or full, smaller where they are too large.

Nothing is dropped. What no nsqd takes for `give_up_after_s` ends the task; a single message that nsqd refuses for its
size is counted as failed, and stays undone in the checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Protocol

from nsq_spark.archive.columns import Numbers
from nsq_spark.replay.batches import Batch, is_final, is_too_large
from nsq_spark.replay.blocks import Block
from nsq_spark.replay.errors import GaveUp, Refused
from nsq_spark.replay.job import Destination
from nsq_spark.replay.marks import Mark
from nsq_spark.replay.outlet import Outlet, Outlets
from nsq_spark.replay.pace import Pace
from nsq_spark.replay.progress import Counts
from nsqd_py.client.errors import ConnectionLost, NsqClientError, TimedOut
from nsqd_py.client.publishing.publish import Publish
from nsqd_py.runtime.outages import Backoff

# On the way at most, so that this is what may be sent twice; but two batches for each nsqd, so that none has to wait.
WINDOW_BYTES = 8 * 1024 * 1024
_BATCHES_EACH = 2
# Where each message is a command, a batch is so many.
_DEFERRED_MESSAGES = 500
_TURN_S = 0.2
_FIRST_PAUSE_S = 0.1
_MOST_PAUSE_S = 5.0
_ENDING_S = 1.0
_NAMED_FAILURES = 10


class Line(Protocol):
    """To the driver: `look` and `rest` raise Stopped when it wants an end."""

    counts: Counts

    def look(self) -> None: ...

    def rest(self, seconds: float) -> None: ...


class Acknowledgements(Protocol):
    """What is told of each range that is done with."""

    def add(self, lane: str, low: Mark, high: Mark, count: int, size_bytes: int = 0, topic: str = "") -> None: ...

    def write(self) -> None: ...


class Sender:
    """Of one task.

    failures              what was said of the first messages that nsqd refused
    possible_duplicates   messages that were sent again while it was not known whether nsqd has them, at most so many
    """

    def __init__(
        self,
        outlets: Outlets,
        destination: Destination,
        pace: Pace,
        acknowledgements: Acknowledgements,
        line: Line,
        *,
        give_up_after_s: float,
        is_ordered: bool = False,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._outlets = outlets
        self._destination = destination
        self._pace = pace
        self._acknowledgements = acknowledgements
        self._line = line
        self._counts = line.counts
        self._give_up_after_s = give_up_after_s
        self._is_ordered = is_ordered
        self._clock = clock
        self._outlet: Outlet | None = None
        self._pause = Backoff(_FIRST_PAUSE_S, _MOST_PAUSE_S)
        self._under_way: dict[int, Batch] = {}
        self._under_way_bytes = 0
        self._returned: deque[Batch] = deque()
        self._fatal: Exception | None = None
        self._looked_s = 0.0
        self.failures: list[str] = []
        self.possible_duplicates = 0
        self._unsure_bytes = 0
        self.topics: dict[str, int] = {}

    # ---- what the task asks for

    def send(self, block: Block, lane: str, low: Mark) -> None:
        """Send all of a block, which comes behind the mark `low`, in the time that the pace allows.

        Returns when it is on its way. Raises GaveUp, Refused, and Stopped.
        """
        topic = self._destination.topic(block.topic)
        most = _DEFERRED_MESSAGES if self._destination.defer_s else block.count
        for begin, most_end in block.chunk.payload.cuts(most, self._destination.batch_bytes):
            while begin < most_end:
                end = begin + self._allowed(block.times_ns, begin, most_end)
                batch = Batch(topic, lane, low, block, begin, end, 0.0)
                self._make_room(batch.size_bytes)
                batch.deadline_s = self._clock() + self._give_up_after_s
                self._start(batch)
                self._pace.sent(batch.count)
                low, begin = batch.last, end

    def goes_on(self) -> None:
        """What is sent now may be what somebody had on the way who ended without having heard of it."""
        self._unsure_bytes = WINDOW_BYTES

    def idle(self) -> None:
        """To be called often while nothing is sent: nsqd wants its heartbeats answered, the driver its figures."""
        self._line.look()
        now_s = self._clock()
        if self._outlet is not None and now_s - self._looked_s >= _TURN_S:
            self._turn(0.0)

    def finish(self) -> None:
        """Wait until all is acknowledged. Raises as `send` does."""
        while self._under_way or self._returned:
            self._line.look()
            self._send_returned()
            self._turn(_TURN_S)
        self._check()
        self.close()

    def close(self, ending_s: float = 0.0) -> None:
        """Take in what nsqd says within `ending_s`, and let go of the rest."""
        deadline_s = self._clock() + ending_s
        outlet, self._outlet = self._outlet, None
        if outlet is None:
            return
        with suppress(NsqClientError):  # what it is about comes back, and is not marked as done
            while self._under_way and (left_s := deadline_s - self._clock()) > 0:
                outlet.turn(min(left_s, _TURN_S))
            outlet.close(0.0)
        self._acknowledgements.write()

    def end_early(self) -> None:
        """After an error or a stop."""
        self.close(_ENDING_S)

    @property
    def is_settled(self) -> bool:
        """Whether nsqd has answered for all that was sent: none of it can be there without being marked as done."""
        return not self._under_way and not any(batch.may_be_there for batch in self._returned)

    # ---- pace and room

    def _allowed(self, times_ns: Numbers | None, begin: int, end: int) -> int:
        """How many of the messages from `begin` to `end` may leave, once at least one may."""
        times_ns = None if times_ns is None else times_ns[begin:end]
        while True:
            count = self._pace.ready(times_ns, end - begin, self._clock())
            if count:
                return count
            wait_s = self._pace.wait_s(times_ns, self._clock())
            if self._under_way or self._returned:
                self._line.look()
                self._send_returned()
                self._turn(min(wait_s, _TURN_S))
            else:
                self.idle()
                self._line.rest(wait_s)

    def _make_room(self, size_bytes: int) -> None:
        while True:
            self._line.look()
            self._send_returned()
            self._turn_if_due()
            if not self._is_full(size_bytes) and not self._returned:
                return
            self._turn(_TURN_S)

    def _is_full(self, more_bytes: int) -> bool:
        least = _BATCHES_EACH * (self._outlet.nsqd_count if self._outlet is not None else 1)
        is_large = self._under_way_bytes + more_bytes > WINDOW_BYTES or self._destination.defer_s > 0
        return is_large and len(self._under_way) >= least

    def _turn_if_due(self) -> None:
        if self._clock() - self._looked_s >= _TURN_S:
            self._turn(0.0)

    def _turn(self, seconds: float) -> None:
        """Hear what nsqds say, write down what is acknowledged, and fail if there is reason to."""
        self._looked_s = self._clock()
        if self._outlet is not None and (self._under_way or not self._returned):
            self._outlet.turn(seconds)
        elif self._returned:
            self._line.rest(min(seconds, self._pause.wait_s(self._clock())))
        self._acknowledgements.write()
        self._check()

    def _check(self) -> None:
        if self._fatal is not None:
            raise self._fatal

    # ---- on the way

    def _start(self, batch: Batch) -> None:
        self._under_way[id(batch)] = batch
        self._under_way_bytes += batch.size_bytes
        try:
            outlet = self._outlet or self._open()
            if self._destination.defer_s:
                self._start_deferred(outlet, batch)
            else:
                batch.publish = self._send_together(outlet, batch)
        except NsqClientError as error:
            self._over(batch, error)

    def _open(self) -> Outlet:
        outlet = self._outlet = self._outlets.open()
        while not outlet.has_discovered:
            self._line.look()
            outlet.turn(_TURN_S)
        return outlet

    def _send_together(self, outlet: Outlet, batch: Batch) -> Publish:
        pieces = batch.block.chunk.mpub_pieces(batch.begin, batch.end)
        return outlet.send_mpub_pieces(batch.topic, pieces, batch.size_bytes, partial(self._over, batch))

    def _start_deferred(self, outlet: Outlet, batch: Batch) -> None:
        """There is no MPUB that defers: a command a message, all of them one behind the other."""
        batch.left, batch.error = batch.count, None
        bodies = batch.block.chunk.slice(batch.begin, batch.end).bodies
        told = partial(self._one_over, batch)
        for number, body in enumerate(bodies.to_pylist()):
            try:
                outlet.publish_soon(batch.topic, body, told, defer_s=self._destination.defer_s)
            except NsqClientError as error:
                batch.left -= batch.count - number - 1  # the rest was not begun
                told(error)
                return

    def _one_over(self, batch: Batch, error: NsqClientError | None) -> None:
        batch.left -= 1
        batch.error = batch.error or error
        if not batch.left:
            self._over(batch, batch.error)

    def _over(self, batch: Batch, error: NsqClientError | None) -> None:
        """nsqd has acknowledged it, or not."""
        if self._under_way.pop(id(batch), None) is None:
            return
        self._under_way_bytes -= batch.size_bytes
        # Each holds the other, and a body of megabytes: they are to be gone at once, not when garbage is collected.
        publish, batch.publish = batch.publish, None
        batch.may_be_there = batch.may_be_there or (publish is not None and publish.losses > 0)
        if error is None:
            self._acknowledged(batch)
        elif is_too_large(error):
            self._too_large(batch, error)
        elif is_final(error) or (self._outlet is not None and self._outlet.is_refused):
            self._fatal = self._fatal or Refused(str(error))
        elif self._clock() >= batch.deadline_s:
            self._fatal = self._fatal or GaveUp(f"gave up after {self._give_up_after_s:g}s: {error}")
        else:
            self._return(batch, error)

    def _acknowledged(self, batch: Batch) -> None:
        self._pause.reset()
        count = batch.count
        self._counts.sent += count
        self._counts.sent_bytes += batch.body_bytes
        self.topics[batch.topic] = self.topics.get(batch.topic, 0) + count
        if batch.may_be_there or self._unsure_bytes > 0:
            self.possible_duplicates += count
        self._unsure_bytes = max(0, self._unsure_bytes - batch.body_bytes)
        self._acknowledgements.add(batch.lane, batch.low, batch.last, count, batch.body_bytes, batch.topic)

    def _too_large(self, batch: Batch, error: NsqClientError) -> None:
        if batch.count > 1:
            self._returned.extend(batch.halves())
            return
        self._counts.failed += 1
        if len(self.failures) < _NAMED_FAILURES:
            chunk = batch.block.chunk
            self.failures.append(f"{chunk.file or batch.topic}, position {chunk.positions[batch.begin]}: {error}")

    def _return(self, batch: Batch, error: NsqClientError) -> None:
        batch.may_be_there = batch.may_be_there or isinstance(error, ConnectionLost | TimedOut)
        self._returned.append(batch)
        self._pause.failed(self._clock())

    # ---- again

    def _send_returned(self) -> None:
        """What came back goes before all that is new. An ordered stream begins anew, with the next nsqd."""
        if not self._returned or self._pause.wait_s(self._clock()):
            return
        if self._is_ordered:
            self._begin_anew()
        returned = sorted(self._returned, key=lambda batch: batch.low)
        self._returned.clear()
        for batch in returned:
            self._start(batch)

    def _begin_anew(self) -> None:
        """All that is under way comes back, and goes in its order."""
        for batch in self._under_way.values():
            batch.may_be_there = True
        outlet, self._outlet = self._outlet, None
        if outlet is not None:
            with suppress(NsqClientError):
                outlet.close(0.0)
