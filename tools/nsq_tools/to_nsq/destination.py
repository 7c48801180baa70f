"""One nsqd that gets every message: batches that await its answer, refusals, retries, giving up."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic

import gevent
from gevent.event import Event

from nsq_tools.to_nsq.records import RecordBatch, RefusedRecord
from nsqd_py.client.errors import HandshakeFailed, NoNsqd, NsqClientError, PublishFailed
from nsqd_py.client.gevent import Producer
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol import outgoing
from nsqd_py.protocol.batch import SIZE_BYTES
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.process import StopSignals
from nsqd_py.settings.durations import SECOND_NS, format_duration

# Limits of what awaits acknowledgement: enough to keep an nsqd busy, and little to wait for at the end.
MOST_DUE_BYTES = 4 << 20
MOST_DUE_BATCHES = 500

_POLL_S = 0.1
_FIRST_PAUSE_S = 0.1
_MOST_PAUSE_S = 5.0
# The texts of errors name a limit: `E_BAD_MESSAGE MPUB message too big 1500 > 1000`, `E_BAD_BODY MPUB body too big ...`.
_TOO_BIG = re.compile(r"(message|body) too big -?\d+ > (\d+)")
_TOO_LARGE = ("E_BAD_MESSAGE", "E_BAD_BODY")
_NOT_STORED = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_AUTH_FAILED")

OnRefusal = Callable[[str, RefusedRecord], None]


class PublishTarget:
    """Publishes batches in order, without waiting for the answer to one before sending the next.

    acknowledged  number of messages that nsqd has stored
    is_waited_for  True until nsqd has answered for the first time
    failure       the reason for giving up this nsqd, or None
    retry_timeout_s  how long nsqd may acknowledge nothing before it is given up
    """

    def __init__(
        self,
        address: str,
        topic: str,
        options: ClientOptions,
        retry_timeout_s: float,
        log: Log,
        on_refusal: OnRefusal,
    ) -> None:
        """`on_refusal(address, refusal)` is called for each record that this nsqd refuses. Raises BadAddress."""
        # The producer retries without limit; `_watch` gives up after retry_timeout_s without an acknowledgement.
        self._producer = Producer(address, options=options, log=log, publish_timeout_s=inf)
        self.address = address
        self.acknowledged = 0
        self.failure: str | None = None
        self._topic = topic
        self.retry_timeout_s = retry_timeout_s
        self._log = log
        self._on_refusal = on_refusal
        self._limits: dict[str, int] = {}  # in bytes, of a message and of the body of an MPUB
        self._due_bytes = 0
        self._due_batches = 0
        self._due_messages = 0
        self._splits = 0  # batches of which some parts are not due yet
        self._pause_s = _FIRST_PAUSE_S
        self._progress_s = monotonic()
        self.is_waited_for = True
        self._is_closed = False
        self._changed = Event()
        self._greenlets: set[gevent.Greenlet[..., None]] = set()
        self._keep(gevent.spawn(self._watch))

    # --- publishing

    def connect(self, stop: StopSignals) -> None:
        """Wait until nsqd answers or is given up, or until a stop signal."""
        while self.failure is None and not stop.is_asked:
            try:
                with gevent.Timeout(_POLL_S, False):  # type: ignore[arg-type]  # an nsqd that hangs delays no end
                    self._producer.ping()
                    self.is_waited_for = False
                    return
            except NoNsqd as error:  # the producer has logged the reason, and retries
                if any(isinstance(reason, HandshakeFailed) and reason.is_lasting for reason in error.reasons):
                    self._give_up(str(error))
                    return
                gevent.sleep(_POLL_S)

    def send(self, batch: RecordBatch) -> None:
        """Send a batch. Waits while too much awaits acknowledgement; returns without sending if nsqd is given up."""
        for part in self._fitting(batch):
            while self._is_full and self.failure is None:
                self._wait()
            if self.failure is not None:
                return
            self._count(part, 1)
            self._publish(part)

    def finish(self) -> None:
        """Wait until everything is acknowledged or refused, or nsqd is given up."""
        while (self._due_batches or self._splits) and self.failure is None:
            self._wait()

    def close(self) -> None:
        """Close the connection. Unacknowledged messages may be stored or not."""
        self._is_closed = True
        gevent.killall(list(self._greenlets))
        with suppress(NsqClientError):
            self._producer.close(timeout_s=0)

    def _keep(self, greenlet: gevent.Greenlet[..., None]) -> None:
        """Own a greenlet until it ends. gevent.pool.Group would load its locks and queues: 8 ms of a start."""
        self._greenlets.add(greenlet)
        greenlet.rawlink(self._greenlets.discard)

    # --- awaiting acknowledgement

    @property
    def _is_full(self) -> bool:
        return self._due_bytes >= MOST_DUE_BYTES or self._due_batches >= MOST_DUE_BATCHES

    def _wait(self) -> None:
        self._changed.clear()
        self._changed.wait()

    def _count(self, batch: RecordBatch, sign: int) -> None:
        """Count a batch that awaits acknowledgement, or with -1 one that does no longer."""
        if not self._due_batches:
            self._progress_s = monotonic()
        self._due_batches += sign
        self._due_messages += sign * len(batch.records)
        self._due_bytes += sign * batch.size_bytes
        self._changed.set()

    def _publish(self, batch: RecordBatch) -> None:
        records = batch.records
        on_done = partial(self._done, batch)
        if len(records) == 1:
            self._producer.publish_soon(self._topic, records[0], on_done)
        else:
            self._producer.send_mpub_body(self._topic, outgoing.mpub_body(records), len(records), on_done)

    # --- answers

    def _done(self, batch: RecordBatch, error: NsqClientError | None) -> None:
        if error is None:
            self.acknowledged += len(batch.records)
            self._progress_s = monotonic()
            self._pause_s = _FIRST_PAUSE_S
            self._count(batch, -1)
        elif self._is_closed:
            return
        elif isinstance(error, PublishFailed) and error.code in _TOO_LARGE:
            self._progress_s = monotonic()
            self._splits += 1
            self._keep(gevent.spawn(self._publish_parts, batch, error))
        elif isinstance(error, PublishFailed) and error.code not in _NOT_STORED:
            self._give_up(str(error))
        else:
            self._log.warning("%s; trying again in %.1f s", error, self._pause_s)
            self._keep(gevent.spawn_later(self._pause_s, self._publish, batch))
            self._pause_s = min(2 * self._pause_s, _MOST_PAUSE_S)

    def _publish_parts(self, batch: RecordBatch, error: PublishFailed) -> None:
        """Send a batch that was too large, of which nsqd has stored nothing, in parts that fit its limit."""
        # Before `send` waits for room: all waiting batches may be split at the same time.
        self._count(batch, -1)
        named = _TOO_BIG.search(error.text)
        if named:
            self._limits[named[1]] = int(named[2])
        if len(batch.records) == 1 and len(batch.records[0]) <= self._limits.get("message", inf):
            self._refuse(batch, 0, error.reason)
        else:
            middle = len(batch.records) // 2
            self.send(batch.part(0, middle))
            self.send(batch.part(middle, len(batch.records)))
        self._splits -= 1
        self._changed.set()

    def _fitting(self, batch: RecordBatch) -> Iterator[RecordBatch]:
        """Yield parts that nsqd accepts, as far as its limits are known. Report the records that it does not accept."""
        if not self._limits:  # the usual case
            yield batch
            return
        most_bytes = self._limits.get("message", inf)
        most_body_bytes = self._limits.get("body", inf)
        start = 0
        body_bytes = SIZE_BYTES
        for index, record in enumerate(batch.records):
            record_bytes = len(record) + SIZE_BYTES
            is_too_large = len(record) > most_bytes
            if is_too_large or body_bytes + record_bytes > most_body_bytes:
                if index > start:
                    yield batch.part(start, index)
                start = index
                body_bytes = SIZE_BYTES
            if is_too_large:
                self._refuse(batch, index, f"it takes no more than {most_bytes}")
                start += 1
            else:
                body_bytes += record_bytes
        if start < len(batch.records):
            yield batch.part(start, len(batch.records))

    def _refuse(self, batch: RecordBatch, index: int, reason: str) -> None:
        self._on_refusal(
            self.address, RefusedRecord(batch.lines[index], batch.source, len(batch.records[index]), reason)
        )

    def _give_up(self, reason: str) -> None:
        self.failure = reason
        self._changed.set()

    def _watch(self) -> None:
        while self.failure is None:
            gevent.sleep(_POLL_S)
            is_due = self.is_waited_for or self._due_batches or self._splits
            if is_due and monotonic() - self._progress_s > self.retry_timeout_s:
                period = format_duration(round(self.retry_timeout_s * SECOND_NS))
                due = ""
                if self._due_messages:
                    due = f", with {self._due_messages:,} messages due"
                self._give_up(f"{self.address} has taken nothing for {period}{due}")
