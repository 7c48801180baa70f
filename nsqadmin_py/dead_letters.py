"""Publishes dead letters to their topics again. A message is finished only after nsqd has stored it there.

If the connection is lost in between, a message may be published twice; none is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from gevent.event import Event

from nsqd_py.client.errors import NsqClientError
from nsqd_py.client.gevent import Consumer, Producer
from nsqd_py.client.message import Message, Requeue
from nsqd_py.client.options import ClientOptions
from nsqd_py.runtime.logs import Log, one_line

_IN_FLIGHT = 100
_WORKERS = 20
_PUBLISH_TIMEOUT_S = 5.0
# If no message has come for this long, other consumers hold the rest.
_IDLE_S = 2.0
_LOOK_S = 0.1


@dataclass(slots=True)
class Requeued:
    """The result. `error` is the last failure, or why the remaining messages did not come."""

    count: int = 0
    failed: int = 0
    error: str = ""


class _ErrorCapturingLog:
    """A log that keeps the errors. A consumer reports an nsqd that cannot be reached only in its log, once for each."""

    def __init__(self, log: Log) -> None:
        self.errors: list[str] = []
        self.debug, self.info, self.warning, self.exception = log.debug, log.info, log.warning, log.exception
        self._error = log.error

    def error(self, text: str, /, *args: object) -> None:
        self.errors.append(one_line(text % args))
        self._error("%s", self.errors[-1])


class DeadLetterRequeue:
    """Moves messages from a dead-letter channel to another topic, on the same nsqd."""

    def __init__(self, nsqds: Mapping[str, int], source: tuple[str, str], target: str, options: ClientOptions, log: Log) -> None:
        """`nsqds` maps TCP addresses to the number of messages in the channel `source` there."""
        self._nsqds = dict(nsqds)
        self._source = source
        self._target = target
        self._options = options
        self._log = _ErrorCapturingLog(log)
        self._left = self._busy = 0  # messages to take, and those that are being published
        self._in_flight = 0
        self._done = Event()
        self._last_s = monotonic()
        self._result = Requeued()
        self._consumer: Consumer | None = None
        self._producers: dict[str, Producer] = {}

    def move(self, limit: int, deadline_s: float) -> Requeued:
        """Move at most `limit` messages in at most `deadline_s`. Blocks this greenlet. Raises NsqClientError."""
        self._left = min(limit, sum(self._nsqds.values()))
        if not self._left:
            return self._result
        topic, channel = self._source
        self._in_flight = min(_IN_FLIGHT * len(self._nsqds), max(self._left, len(self._nsqds)))
        consumer = self._consumer = Consumer(
            topic,
            channel,
            self._handle,
            nsqd_tcp_addresses=self._nsqds,
            concurrency=_WORKERS,
            options=self._options,
            log=self._log,
            max_in_flight=self._in_flight,
            max_attempts=0,
            max_backoff_duration=0,
        )
        try:
            consumer.start()
            self._wait(consumer, deadline_s)
        finally:
            consumer.stop(_PUBLISH_TIMEOUT_S)
            for producer in self._producers.values():
                producer.close(_PUBLISH_TIMEOUT_S)
        if self._left > 0 and not self._result.error:
            self._result.error = "; ".join(dict.fromkeys(self._log.errors))
        return self._result

    def _wait(self, consumer: Consumer, deadline_s: float) -> None:
        end_s = monotonic() + deadline_s
        while not self._done.wait(_LOOK_S):
            now_s = monotonic()
            have_all_failed = len(self._log.errors) >= len(self._nsqds) and not consumer.stats().connections
            if now_s > end_s or now_s - self._last_s > _IDLE_S or have_all_failed:
                return

    def _handle(self, message: Message) -> None:
        if self._left <= 0:
            raise Requeue(0, backoff=False)
        self._left -= 1
        self._busy += 1
        self._last_s = monotonic()
        try:
            self._producer(message.nsqd).publish(self._target, message.body)
        except NsqClientError as error:
            self._result.failed += 1
            self._result.error = str(error)
            raise Requeue(0, backoff=False) from error
        else:
            self._result.count += 1
        finally:
            self._busy -= 1
            self._request_no_more()
            if self._left <= 0:
                self._done.set()

    def _request_no_more(self) -> None:
        """Request only what is left: messages beyond the limit would have to be requeued.

        As long as something is left, each nsqd may send one: the others may have none.
        """
        wanted = max(self._left + self._busy, len(self._nsqds)) if self._left else self._busy
        if self._consumer is not None and wanted < self._in_flight:
            self._in_flight = wanted
            self._consumer.set_max_in_flight(wanted)

    def _producer(self, nsqd: str) -> Producer:
        producer = self._producers.get(nsqd)
        if producer is None:
            producer = Producer(nsqd, options=self._options, publish_timeout_s=_PUBLISH_TIMEOUT_S, log=self._log)
            self._producers[nsqd] = producer
        return producer
