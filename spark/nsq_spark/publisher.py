"""Publish messages of a Spark task until nsqd has acknowledged them; the data source and spark-replay share it.

The client's producer already sends a publish to another nsqd when a connection breaks. This module adds what a batch
job needs: it retries with growing pauses for a given time, halves batches that are too large for nsqd, keeps an ordered
stream in order, and counts what may have been stored twice. It drops nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import random
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nsq_spark.archive.chunk import Payload
from nsqd_py.client.blocking.lookup import find_nsqds
from nsqd_py.client.blocking.publishing_core import NonBlockingProducer
from nsqd_py.client.errors import BadName, ConnectionLost, NoNsqd, NsqClientError, TimedOut
from nsqd_py.client.options import ClientOptions
from nsqd_py.client.publishing.publish import BadBody, PendingPublish
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.runtime.logs.outages import Backoff

# The limits of what is unanswered, and so of what may be stored twice after a failure. nsqd answers a batch at once: if it
# ends with one that it stored and did not answer, four batches are at most four times what is stored twice. Two for each
# nsqd may be unanswered whatever their size, so that no nsqd has to wait.
WINDOW_BYTES = 8 * 1024 * 1024
_BATCHES_EACH = 2
_MOST_BATCHES_EACH = 4
# Messages in one batch whose messages are published one by one, because they are deferred.
MOST_DEFERRED = 500
_STEP_S = 0.2
_FIRST_PAUSE_S = 0.1
_MOST_PAUSE_S = 5.0
_ENDING_S = 1.0
# After this time an ordered stream goes to the next nsqd.
_FAIL_OVER_S = 10.0
# Larger than a window of ours: the producer never makes its caller wait.
_PRODUCER_WINDOW = 10_000
_PRODUCER_WINDOW_BYTES = 64 << 20

# Errors that a smaller batch may not have; and errors that every nsqd of the cluster would give again.
_TOO_LARGE = frozenset(("E_BAD_BODY", "E_BAD_MESSAGE"))
_FINAL = frozenset(("E_BAD_TOPIC", "E_INVALID", "E_UNAUTHORIZED", "E_AUTH_FIRST", "E_AUTH_DISABLED"))
# nsqd may have stored it: only a standby or a bucket did not answer. Go's nsqd may have stored a part of an MPUB.
_MAY_BE_STORED = frozenset(("E_PUB_FAILED", "E_MPUB_FAILED", "E_DPUB_FAILED"))
# The checks of our client refuse what nsqd would refuse with these codes.
_CODES_OF_CHECKS: dict[type[Exception], str] = {BadBody: "E_BAD_BODY", BadName: "E_BAD_TOPIC"}

# The caller reports what goes wrong, with the messages that it goes wrong for.
_log = logging.getLogger("nsq_spark.publisher")
_log.addHandler(logging.NullHandler())
_log.propagate = False


class NotPublished(Exception):
    """Some messages were not published; the text gives nsqd's address and the reason."""


@dataclass(slots=True, eq=False)
class PublishBatch:
    """Messages `begin` to `end` (not included) of a payload. They are sent, and acknowledged, together.

    They are cut out of the payload only if they have to be: that takes longer than to send them.

    defer_ms      0, or the delay of each message: a number, or one for each message of the payload
    origin        what the caller knows the messages by
    publishes     what the producer knows of it, while it is under way: one, or one for each message that is deferred
    copies        how often nsqd may have stored it without an acknowledgement
    """

    topic: str
    payload: Payload
    begin: int
    end: int
    defer_ms: int | Sequence[int] = 0
    origin: Any = None
    number: int = 0
    deadline_s: float = 0.0
    publishes: Sequence[PendingPublish] = ()
    copies: int = 0

    @property
    def count(self) -> int:
        return self.end - self.begin

    @property
    def body_bytes(self) -> int:
        return self.payload.bytes_of(self.begin, self.end)

    @property
    def size_bytes(self) -> int:
        """The size of the body of an MPUB of these messages."""
        return self.body_bytes + SIZE_BYTES * (self.count + 1)

    @property
    def counts(self) -> PublishCounts:
        """The counts of its messages, once they are acknowledged."""
        possible_duplicates = self.count * self.copies
        return PublishCounts(self.count, self.body_bytes, possible_duplicates, {self.topic: self.count})

    def halves(self) -> Iterator[PublishBatch]:
        middle = self.begin + self.count // 2
        yield replace(self, end=middle, publishes=())
        yield replace(self, begin=middle, publishes=())


@dataclass(slots=True)
class PublishCounts:
    """The messages that nsqd acknowledged.

    possible_duplicates  the largest number of copies that may be stored in addition: those of messages that were sent again
                         while it was not known whether nsqd had stored them
    """

    messages: int = 0
    size_bytes: int = 0
    possible_duplicates: int = 0
    topics: dict[str, int] = field(default_factory=dict)

    def add(self, other: PublishCounts) -> None:
        self.messages += other.messages
        self.size_bytes += other.size_bytes
        self.possible_duplicates += other.possible_duplicates
        for topic, count in other.topics.items():
            self.topics[topic] = self.topics.get(topic, 0) + count


def by_topic(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each topic of a column `topic`, in their order."""
    topics = rows.column("topic").dictionary_encode()
    for code, topic in enumerate(topics.dictionary.to_pylist()):
        yield topic, rows if len(topics.dictionary) == 1 else rows.filter(pc.equal(topics.indices, code))


class PublishObserver:
    """The events of a TaskPublisher for its caller. `poll` and `sleep` may raise, to end the work."""

    def acknowledged(self, batch: PublishBatch) -> None:
        """nsqd has stored the batch."""

    def too_large(self, batch: PublishBatch, error: Exception) -> None:
        """nsqd takes no message of this size; the batch is a single one. Return to go on without it."""
        raise NotPublished(f"not published: {error}")

    def stepped(self) -> None:
        """All answers that have come so far are handled."""

    def poll(self) -> None:
        """Called often."""

    def sleep(self, seconds: float) -> None:
        """Sleep at most for `seconds`."""
        sleep(seconds)


@dataclass(slots=True)
class Producers:
    """Opens the producer of a task, and the next one after a failure.

    Unordered, one producer spreads over all nsqds. An ordered stream goes to one nsqd at a time; `turn` says which, and
    differs from task to task at first.
    """

    nsqds: Sequence[str]
    lookupds: Sequence[str]
    options: ClientOptions
    give_up_after_s: float
    is_ordered: bool = False
    turn: int = 0

    def open(self) -> NonBlockingProducer:
        """Raises NsqClientError."""
        nsqds = self.nsqds
        lookupds = self.lookupds
        limit_s = self.give_up_after_s
        if self.is_ordered:
            known = self._known_nsqds()
            nsqds = (known[self.turn % len(known)],)
            lookupds = ()
            self.turn += 1
            if len(known) != 1:
                limit_s = min(limit_s, _FAIL_OVER_S)
        return NonBlockingProducer(
            nsqd_tcp_addresses=nsqds,
            lookupd_http_addresses=lookupds,
            options=self.options,
            window=_PRODUCER_WINDOW,
            window_bytes=_PRODUCER_WINDOW_BYTES,
            publish_timeout_s=max(0.1, limit_s),
            log=_log,
        )

    def _known_nsqds(self) -> list[str]:
        """Return all nsqds, and ask the nsqlookupds for them now. Raises NoNsqd."""
        found = set(self.nsqds)
        failures = []
        for lookupd in self.lookupds:
            try:
                found.update(find_nsqds(lookupd, "", self.options))
            except NsqClientError as error:
                failures.append(str(error))
        if not found:
            raise NoNsqd("; ".join(failures) or "nsqlookupd knows no nsqd")
        return sorted(found)


class TaskPublisher:
    """Publishes the messages of one task."""

    def __init__(self, producers: Producers, observer: PublishObserver) -> None:
        self._producers = producers
        self._observer = observer
        self._producer: NonBlockingProducer | None = None
        self._pause = Backoff(_FIRST_PAUSE_S, _MOST_PAUSE_S, random)
        self._under_way: set[PublishBatch] = set()
        self._under_way_bytes = 0
        self._returned: list[PublishBatch] = []
        self._fatal: NotPublished | None = None
        self._stepped_s = 0.0
        self._sent_count = 0
        self.counts = PublishCounts()

    def send(self, batch: PublishBatch) -> None:
        """Start to publish a batch, as soon as there is room for it. Raises NotPublished."""
        self.idle()
        self._send_returned()
        while not self._has_room(batch):
            self._go_on(_STEP_S)
        self._sent_count += 1
        batch.number = self._sent_count
        batch.deadline_s = monotonic() + self._producers.give_up_after_s
        self._start(batch)

    def wait(self, seconds: float) -> None:
        """Wait for at most so long, and in the meantime go on with what is under way. Raises NotPublished."""
        if self._under_way or self._returned:
            self._go_on(seconds)
        else:
            self.idle()
            self._observer.sleep(seconds)

    def idle(self) -> None:
        """Answer nsqd's heartbeats. To be called often while nothing is sent."""
        self._observer.poll()
        if self._producer and monotonic() - self._stepped_s >= _STEP_S:
            self._step(0.0)

    def finish(self) -> None:
        """Wait until nsqd has acknowledged all, and close the connections. Raises NotPublished."""
        while self._under_way or self._returned:
            self._go_on(_STEP_S)
        if self._fatal:
            raise self._fatal
        self._close(0.0)
        self._observer.stepped()

    def close(self) -> None:
        """Handle the answers of the next second, and give up the rest: after an error, or a stop."""
        self._close(_ENDING_S)
        self._observer.stepped()

    def _close(self, ending_s: float) -> None:
        deadline_s = monotonic() + ending_s
        producer, self._producer = self._producer, None
        if producer:
            with suppress(NsqClientError):  # its batches come back, and are not acknowledged
                while self._under_way and (left_s := deadline_s - monotonic()) > 0:
                    producer.step(min(left_s, _STEP_S))
                producer.close(0.0)

    # ---- room

    def _go_on(self, seconds: float) -> None:
        """Publish and take answers for at most this time. Raises NotPublished."""
        self._observer.poll()
        self._send_returned()
        self._step(min(seconds, _STEP_S))

    def _has_room(self, batch: PublishBatch) -> bool:
        """True if the batch may be sent now: none waits to be sent again, and few are unanswered."""
        is_large = self._under_way_bytes + batch.size_bytes > WINDOW_BYTES or batch.defer_ms != 0
        each = _BATCHES_EACH if is_large else _MOST_BATCHES_EACH
        nsqd_count = self._producer.nsqd_count if self._producer else 1
        return not self._returned and len(self._under_way) < each * nsqd_count

    def _step(self, seconds: float) -> None:
        self._stepped_s = monotonic()
        if self._producer and (self._under_way or not self._returned):
            self._producer.step(seconds)
        elif self._returned:
            self._observer.sleep(min(seconds, self._pause.wait_s(monotonic())))
        self._observer.stepped()
        if self._fatal:
            raise self._fatal

    # ---- under way

    def _start(self, batch: PublishBatch) -> None:
        self._under_way.add(batch)
        self._under_way_bytes += batch.size_bytes
        try:
            producer = self._producer or self._open()
            if batch.defer_ms:
                self._start_deferred(producer, batch)
            else:
                pieces = batch.payload.mpub_pieces(batch.begin, batch.end)
                publish = producer.send_mpub_pieces(batch.topic, pieces, partial(self._ended, batch))
                batch.publishes = (publish,)
        except (NsqClientError, BadName) as error:
            self._ended(batch, error)

    def _open(self) -> NonBlockingProducer:
        producer = self._producers.open()
        self._producer = producer
        while not producer.has_discovered:
            self._observer.poll()
            producer.step(_STEP_S)
        return producer

    def _start_deferred(self, producer: NonBlockingProducer, batch: PublishBatch) -> None:
        """Publish message by message: NSQ has no MPUB that defers."""
        bodies = batch.payload.take(slice(batch.begin, batch.end)).array().to_pylist()
        delays = batch.defer_ms
        if isinstance(delays, int):
            delays = [delays] * batch.end
        answers: list[Exception | None] = []

        def on_done(error: Exception | None) -> None:
            answers.append(error)
            if len(answers) == batch.count:
                self._ended(batch, next(filter(None, answers), None))

        batch.publishes = publishes = []
        for body, delay_ms in zip(bodies, delays[batch.begin : batch.end], strict=True):
            publishes.append(producer.publish_soon(batch.topic, body, on_done, defer_s=delay_ms / 1000))

    def _ended(self, batch: PublishBatch, error: Exception | None) -> None:
        """Acknowledge, halve, return or refuse a batch that the producer is done with."""
        if batch not in self._under_way:
            return
        self._under_way.remove(batch)
        self._under_way_bytes -= batch.size_bytes
        copies = _copies_of(batch.publishes, error)
        if (
            error is not None and batch.defer_ms
        ):  # some of its messages may be acknowledged, and all are sent again
            copies = max(copies, 1)
        batch.copies += copies
        # Each refers to the other, and to megabytes, which would stay until garbage is collected.
        batch.publishes = ()
        if error is None:
            self._acknowledged(batch)
            return
        code = getattr(error, "code", _CODES_OF_CHECKS.get(type(error)))
        if code in _TOO_LARGE:
            self._too_large(batch, error)
        elif code in _FINAL or (self._producer and self._producer.is_refused):
            self._fatal = self._fatal or NotPublished(f"not published: {error}")
        elif monotonic() >= batch.deadline_s:
            self._fatal = self._fatal or NotPublished(
                f"not published in {self._producers.give_up_after_s:g}s: {error}"
            )
        else:
            if not self._returned:  # one lost connection returns several batches
                self._pause.failed(monotonic())
            self._returned.append(batch)

    def _acknowledged(self, batch: PublishBatch) -> None:
        self._pause.reset()
        self.counts.add(batch.counts)
        self._observer.acknowledged(batch)

    def _too_large(self, batch: PublishBatch, error: Exception) -> None:
        if batch.count > 1:
            self._returned.extend(batch.halves())
            return
        try:
            self._observer.too_large(batch, error)
        except NotPublished as refused:
            self._fatal = self._fatal or refused

    # ---- again

    def _send_returned(self) -> None:
        """Send batches that came back, before all new ones. An ordered stream starts again with the next nsqd."""
        if not self._returned or self._pause.wait_s(monotonic()):
            return
        if self._producers.is_ordered:  # all batches come back, and are sent in their order
            for batch in self._under_way:
                batch.copies += 1
            self._close(0.0)
        returned, self._returned = self._returned, []
        for batch in sorted(returned, key=lambda batch: (batch.number, batch.begin)):
            self._start(batch)


def _copies_of(publishes: Iterable[PendingPublish], error: Exception | None) -> int:
    """Return how often nsqds may have stored what ended with this error, or was acknowledged then."""
    code = getattr(error, "code", "")
    refused = int(code in _TOO_LARGE or code in _FINAL)
    copies = max((one.losses + max(0, one.refusals - refused) for one in publishes), default=0)
    if isinstance(error, ConnectionLost | TimedOut) or code in _MAY_BE_STORED:
        copies = max(copies, 1)
    return copies
