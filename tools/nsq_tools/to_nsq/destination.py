"""One nsqd that gets every message: what is on its way there, what it refused, when it is given up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from time import monotonic

import gevent
from gevent.event import Event
from gevent.pool import Group

from nsq_tools.to_nsq.records import Batch, Fitting, Limits, Refusal, halves
from nsqd_py.client import Producer
from nsqd_py.client.errors import NoNsqd, NsqClientError, PublishFailed
from nsqd_py.client.options import ClientOptions
from nsqd_py.protocol import outgoing
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.process import StopSignals
from nsqd_py.settings.durations import SECOND_NS, format_duration

# So much is held at most until it is acknowledged: enough to keep an nsqd busy, and little to wait for at the end.
MOST_HELD_BYTES = 4 << 20
MOST_HELD_BATCHES = 500
# Below the 5 MiB that nsqd takes by default.
MAX_BODY_BYTES = 2 << 20

_LOOK_S = 0.1
_FIRST_PAUSE_S = 0.1
_MOST_PAUSE_S = 5.0
_TOO_LARGE = ("E_BAD_MESSAGE", "E_BAD_BODY")
_NOT_STORED = ("E_PUB_FAILED", "E_MPUB_FAILED", "E_AUTH_FAILED")

OnRefusal = Callable[[str, Refusal], None]


class Destination:
    """Publishes batches in the order in which they come, many at a time.

    acknowledged  how many messages nsqd has stored
    failure       why it gets nothing more, once it is given up
    """

    def __init__(
        self, address: str, topic: str, options: ClientOptions, retry_timeout_s: float, log: Log, on_refusal: OnRefusal
    ) -> None:
        """`on_refusal(address, refusal)` is told of each record that this nsqd does not take. Raises BadAddress."""
        # The producer tries for ever. When that has been too long is decided here, by what was acknowledged last.
        self._producer = Producer(address, options=options, log=log, publish_timeout_s=inf)
        self.address = address
        self.acknowledged = 0
        self.failure: str | None = None
        self._topic = topic
        self._retry_timeout_s = retry_timeout_s
        self._log = log
        self._on_refusal = on_refusal
        self._limits = Limits(MAX_BODY_BYTES)
        self._held_bytes = self._held_batches = self._held_messages = 0
        self._pause_s = _FIRST_PAUSE_S
        self._progress_s = monotonic()
        self._is_waited_for = True
        self._is_closed = False
        self._changed = Event()
        self._greenlets = Group()
        self._greenlets.spawn(self._watch)

    # --- for who has something to publish

    def connect(self, stop: StopSignals) -> None:
        """Returns when nsqd is there, or is given up, or when it is time to stop."""
        while self.failure is None and not stop.is_asked:
            try:
                self._producer.ping()
            except NoNsqd:  # the producer has said why, and tries again
                gevent.sleep(_LOOK_S)
            else:
                self._is_waited_for = False
                return

    def send(self, batch: Batch) -> None:
        """Returns when it is on its way, which may take until others have arrived; or when nsqd is given up."""
        self._send(self._limits.fit(batch))

    def finish(self) -> None:
        """Returns when all is acknowledged or refused, or nsqd is given up."""
        while self._held_batches and self.failure is None:
            self._wait()

    def close(self) -> None:
        """End the connection; what is not acknowledged then may be stored or not."""
        self._is_closed = True
        self._greenlets.kill()
        with suppress(NsqClientError):
            self._producer.close(timeout_s=0)

    # --- on its way

    @property
    def _is_full(self) -> bool:
        return self._held_bytes >= MOST_HELD_BYTES or self._held_batches >= MOST_HELD_BATCHES

    def _wait(self) -> None:
        self._changed.clear()
        self._changed.wait()

    def _send(self, fitting: Fitting) -> None:
        for refusal in fitting.refused:
            self._on_refusal(self.address, refusal)
        for batch in fitting.parts:
            while self._is_full and self.failure is None:
                self._wait()
            if self.failure is not None:
                return
            self._hold(batch, batch.size_bytes)
            self._publish(batch)

    def _hold(self, batch: Batch, size_bytes: int) -> None:
        if not self._held_batches:
            self._progress_s = monotonic()
        self._held_batches += 1
        self._held_messages += len(batch.records)
        self._held_bytes += size_bytes

    def _let_go(self, batch: Batch, size_bytes: int) -> None:
        self._held_batches -= 1
        self._held_messages -= len(batch.records)
        self._held_bytes -= size_bytes
        self._changed.set()

    def _publish(self, batch: Batch) -> None:
        records, on_done = batch.records, partial(self._done, batch)
        if len(records) == 1:
            self._producer.publish_soon(self._topic, records[0], on_done)
        else:
            self._producer.send_mpub_body(self._topic, outgoing.mpub_body(records), len(records), on_done)

    # --- what became of it

    def _done(self, batch: Batch, error: NsqClientError | None) -> None:
        if error is None:
            self.acknowledged += len(batch.records)
            self._progress_s = monotonic()
            self._pause_s = _FIRST_PAUSE_S
            self._let_go(batch, batch.size_bytes)
        elif self._is_closed:
            return
        elif isinstance(error, PublishFailed) and error.code in _TOO_LARGE:
            self._progress_s = monotonic()
            self._greenlets.spawn(self._publish_parts, batch, error)
        elif isinstance(error, PublishFailed) and error.code not in _NOT_STORED:
            self._give_up(str(error))
        else:
            self._log.warning("%s; trying again in %.1f s", error, self._pause_s)
            self._greenlets.add(gevent.spawn_later(self._pause_s, self._publish, batch))
            self._pause_s = min(2 * self._pause_s, _MOST_PAUSE_S)

    def _publish_parts(self, batch: Batch, error: PublishFailed) -> None:
        """Something in it was too large, and nsqd has taken none of it."""
        self._limits.learn(error.text)
        fitting = self._limits.fit(batch)
        if len(fitting.parts) == 1 and not fitting.refused:  # what was said did not help
            fitting = halves(batch) if len(batch.records) > 1 else Fitting([], [_refused(batch, error)])
        self._let_go(batch, batch.size_bytes)  # before it waits for room: all that is held may be split at a time
        self._send(fitting)

    def _give_up(self, reason: str) -> None:
        self.failure = reason
        self._changed.set()

    def _watch(self) -> None:
        while self.failure is None:
            gevent.sleep(_LOOK_S)
            is_due = self._is_waited_for or self._held_batches
            if is_due and monotonic() - self._progress_s > self._retry_timeout_s:
                period = format_duration(round(self._retry_timeout_s * SECOND_NS))
                due = f", with {self._held_messages:,} messages due" if self._held_messages else ""
                self._give_up(f"{self.address} has taken nothing for {period}{due}")


def _refused(batch: Batch, error: PublishFailed) -> Refusal:
    """A lone record that nsqd does not take, though it names no limit."""
    return Refusal(batch.lines[0], len(batch.records[0]), error.reason)
