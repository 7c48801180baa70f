"""The consumers of one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Event
from typing import Any, NamedTuple, Self

from nsqd_py.client.aio import Consumer as AsyncConsumer
from nsqd_py.client.blocking.backend import THREADS
from nsqd_py.client.blocking.consumer import Consumer
from nsqd_py.client.consuming.base import STOP_TIMEOUT_S
from nsqd_py.runtime.logs.lines import LineWriter
from nsqd_py.work.calling import Calls
from nsqd_py.work.handlers import Handler
from nsqd_py.work.pacing import Pace, TimeLimits

_POLL_S = 0.1  # how often `wait` looks at the consumers


class HandlerStats(NamedTuple):
    """What one handler has done in this process, and what it does now.

    is_running                     its consumer has not ended
    connections                    how many nsqds it is connected to
    received, finished, requeued   messages, as the consumer counts them
    in_flight                      messages received and not answered yet
    retried                        calls that failed, whose messages come again
    dead, dropped                  messages moved to the dead letters, and dropped. They count as finished too
    timed_out                      calls over their time limit
    """

    name: str
    topic: str
    channel: str
    is_running: bool
    connections: int
    received: int
    finished: int
    requeued: int
    in_flight: int
    retried: int
    dead: int
    dropped: int
    timed_out: int


class _Consumed(NamedTuple):
    """A handler, its consumer, and its calls in this process. `ended` is done when the consumer of an event loop is."""

    handler: Handler
    calls: Calls
    consumer: Consumer
    pace: Pace | None
    ended: Future[Any] | None


class EventLoop:
    """An event loop in a thread, for coroutine functions."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        THREADS.spawn("nsqd-py event loop", self._run)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def submit(self, coroutine: Any) -> Future[Any]:
        """Run the coroutine in the loop. Return the future of its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._loop.stop)


class Running:
    """The consumers of the handlers of an app, in this process. `App.start` makes it.

    They stop when one of them ends for good, that is by an error of itself and not of a handler, or by `sys.exit()` in one.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        make_calls: Callable[[Handler, Pace | None, TimeLimits], Calls],
        settings: dict[str, Any],
        log: LineWriter,
    ) -> None:
        """Start a consumer for each handler, with these settings. Raises as `Consumer`."""
        self._log = log
        self._limits = TimeLimits()
        self._loop = EventLoop() if any(handler.is_async for handler in handlers) else None
        self._consumed: list[_Consumed] = []
        self._is_stopping = False
        self._has_ended = Event()
        self._failure: BaseException | None = None
        if any(handler.time_limit_s is not None for handler in handlers):
            self._limits.start()
        try:
            for handler in handlers:
                pace = None if handler.rate is None else Pace(handler.rate)
                calls = make_calls(handler, pace, self._limits)
                self._consumed.append(self._start(handler, calls, pace, settings))
        except BaseException:
            self.begin_to_stop(0)
            self.wait(0)
            raise

    def _start(
        self, handler: Handler, calls: Calls, pace: Pace | None, settings: dict[str, Any]
    ) -> _Consumed:
        given = {
            **settings,
            "concurrency": handler.concurrency,
            "max_in_flight": handler.max_in_flight,
            "max_attempts": 0,  # retries and dead letters are those of `Calls`
        }
        if not handler.is_async:
            consumer = Consumer(handler.topic, handler.channel, calls.handle, **given)
            consumer.start()
            return _Consumed(handler, calls, consumer, pace, None)
        assert self._loop is not None
        in_loop = AsyncConsumer(handler.topic, handler.channel, calls.handle_async, **given)
        self._loop.submit(in_loop.start()).result()
        return _Consumed(handler, calls, in_loop, pace, self._loop.submit(in_loop.wait()))

    # ---- its end

    @property
    def failure(self) -> BaseException | None:
        """The error that ended a consumer for good, or None."""
        return self._failure

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def begin_to_stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request no more messages, and end when those in flight are answered, or after `timeout_s`. Returns at once.

        A call with 0 gives back what runs, at once. Signal handlers may call this.
        """
        self._is_stopping = True
        for each in self._consumed:
            if each.pace is not None:
                each.pace.end()
            each.consumer.begin_to_stop(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all consumers have ended. Return False after the time-out. `failure` says if one ended for good."""
        ends_s = None if timeout_s is None else time.monotonic() + timeout_s
        while self._find_running():
            if self._failure is not None and not self._is_stopping:
                self.begin_to_stop()
            if ends_s is not None and time.monotonic() >= ends_s:
                return False
            time.sleep(_POLL_S)
        self._close()
        return True

    def _find_running(self) -> list[_Consumed]:
        """Return the handlers whose consumers have not ended."""
        return [each for each in self._consumed if not self._has_stopped(each)]

    def _has_stopped(self, each: _Consumed) -> bool:
        """True if a consumer has ended. Notes the error that ended it."""
        try:
            if each.ended is None:
                return each.consumer.wait(0)
            if each.ended.done():
                each.ended.result()
            return each.ended.done()
        except BaseException as error:  # noqa: BLE001 - `failure` has it
            if self._failure is None:
                self._failure = error
                self._log.error("the consumer of %s has ended: %r", each.handler, error)
            return True

    def _close(self) -> None:
        self._limits.close()
        if self._loop is not None:
            self._loop.close()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Begin to stop, and wait for the end."""
        self.begin_to_stop(timeout_s)
        self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    # ---- how it stands

    def stats(self) -> list[HandlerStats]:
        """Return the statistics of each handler."""
        return [_stats(each) for each in self._consumed]


def _stats(each: _Consumed) -> HandlerStats:
    of_consumer = each.consumer.stats()
    counts = each.calls.counts
    return HandlerStats(
        name=each.handler.name,
        topic=each.handler.topic,
        channel=each.handler.channel,
        is_running=each.consumer.running,
        connections=len(of_consumer.connections),
        received=of_consumer.received,
        finished=of_consumer.finished,
        requeued=of_consumer.requeued,
        in_flight=of_consumer.in_flight,
        retried=counts.retried,
        dead=counts.dead,
        dropped=counts.dropped,
        timed_out=counts.timed_out,
    )
