"""Publishes batches until nsqd has acknowledged them: again where it is down or full, for so long as one is patient."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from nsq_spark.replay.batches import is_final as is_refused
from nsq_spark.replay.batches import is_too_large
from nsq_spark.replay.outlet import Outlet
from nsq_spark.source.options import WriteOptions
from nsqd_py.batch import SIZE_BYTES
from nsqd_py.client.errors import BadName, ConnectionLost, NsqClientError, TimedOut
from nsqd_py.client.publishing.base import BaseProducer
from nsqd_py.client.publishing.publish import Done, Publish
from nsqd_py.runtime.outages import Backoff

_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0
_ENDING_S = 1.0
_TURN_S = 0.2
_log = logging.getLogger("nsqd_py.spark")


class PublishGaveUp(Exception):
    """nsqd did not take messages; the text names its address, and what was published before."""


@dataclass(slots=True)
class Send:
    """One command: an MPUB with its body, or a message that is to be deferred."""

    topic: str
    body: bytes
    count: int
    defer_ms: int = 0
    deadline_s: float = 0.0
    may_be_there: bool = False
    publish: Publish | None = None

    def start(self, producer: BaseProducer, on_done: Done) -> None:
        """Raises NsqClientError."""
        if self.defer_ms:
            self.publish = producer.publish_soon(self.topic, self.body, on_done, defer_s=self.defer_ms / 1000)
        else:
            self.publish = producer.send_mpub_body(self.topic, self.body, self.count, on_done)

    @property
    def size_bytes(self) -> int:
        """Of the messages."""
        return len(self.body) if self.defer_ms else len(self.body) - SIZE_BYTES * (self.count + 1)

    @property
    def was_sent_again(self) -> bool:
        """While nobody knew whether it was stored."""
        return self.may_be_there or (self.publish is not None and self.publish.losses > 0)


@dataclass(slots=True)
class Counts:
    """What nsqd acknowledged. `possible_duplicates` were sent again while nobody knew whether they were stored."""

    messages: int = 0
    size_bytes: int = 0
    possible_duplicates: int = 0
    topics: dict[str, int] = field(default_factory=dict)

    def add(self, send: Send) -> None:
        self.messages += send.count
        self.size_bytes += send.size_bytes
        self.possible_duplicates += send.count if send.was_sent_again else 0
        self.topics[send.topic] = self.topics.get(send.topic, 0) + send.count


class Publisher:
    """Of one task. A context manager; leaving it without an error waits until all is acknowledged."""

    def __init__(self, options: WriteOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._give_up_after_s = options.give_up_after_s
        self._clock = clock
        self._pause = Backoff(_FIRST_PAUSE_S, _MOST_PAUSE_S)
        self._returned: deque[Send] = deque()
        self._fatal: Exception | None = None
        self.counts = Counts()
        self._outlet = Outlet(
            nsqd_tcp_addresses=options.nsqd_tcp_addresses,
            lookupd_http_addresses=options.lookupd_http_addresses,
            options=options.client,
            window_bytes=options.window_bytes,
            publish_timeout_s=max(0.1, options.give_up_after_s),
            log=_log,
        )

    def send(self, send: Send) -> None:
        """Returns when it is on its way, which may wait for others. Raises PublishGaveUp."""
        self._send_returned()
        send.deadline_s = self._clock() + self._give_up_after_s
        self._start(send)
        self._check()

    def finish(self) -> None:
        """Wait until all is acknowledged. Raises PublishGaveUp."""
        self._outlet.flush()
        while self._returned:
            self._send_returned()
            self._outlet.flush()
        self._check()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            self._close()

    def _close(self) -> None:
        with suppress(NsqClientError, OSError):  # after an error that says more
            self._outlet.close(_ENDING_S)

    # ---- again

    def _send_returned(self) -> None:
        """What came back goes before what is new, after a pause."""
        while self._returned:
            self._check()
            while (wait_s := self._pause.wait_s(self._clock())) > 0:
                self._outlet.turn(min(wait_s, _TURN_S))
            returned, self._returned = self._returned, deque()
            for send in returned:
                self._start(send)

    def _start(self, send: Send) -> None:
        try:
            send.start(self._outlet, partial(self._over, send))
        except (NsqClientError, BadName) as error:
            self._over(send, error)

    def _over(self, send: Send, error: Exception | None) -> None:
        """nsqd has acknowledged it, or not."""
        if error is None:
            self._pause.reset()
            self.counts.add(send)
        elif is_final(error) or self._outlet.is_refused or self._clock() >= send.deadline_s:
            self._fatal = self._fatal or error
        else:
            send.may_be_there = send.was_sent_again or isinstance(error, ConnectionLost | TimedOut)
            self._returned.append(send)
            self._pause.failed(self._clock())

    def _check(self) -> None:
        if self._fatal is not None:
            has_tried = not is_final(self._fatal) and not self._outlet.is_refused
            tried = f" in {self._give_up_after_s:g}s" if has_tried else ""
            done = f"this task had published {self.counts.messages} messages"
            raise PublishGaveUp(f"nsq: not published{tried}: {self._fatal} ({done})")


def is_final(error: Exception) -> bool:
    """Whether every nsqd would say the same again."""
    return is_refused(error) or is_too_large(error)
