"""The consumers of one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NamedTuple, Self

from nsqd_py.client.aio import Consumer as AsyncConsumer
from nsqd_py.client.blocking.backend import THREADS
from nsqd_py.client.blocking.consumer import Consumer
from nsqd_py.client.consuming.base import STOP_TIMEOUT_S
from nsqd_py.client.message import Message
from nsqd_py.errors import NsqdError
from nsqd_py.runtime.logs.lines import LineWriter
from nsqd_py.work.batches import Collector
from nsqd_py.work.calling import Calls
from nsqd_py.work.handlers import Handler
from nsqd_py.work.pacing import Pace, TimeLimits
from nsqd_py.work.refusals import ConsumerRefused, RefusalWatch, is_refusal
from nsqd_py.work.timed.scheduler import Scheduler

_POLL_S = 0.1  # how often `wait` looks at the consumers
_RETURNING_S = 1.0  # how long consumers stay connected after the time of a stop, to return messages


class HandlerStats(NamedTuple):
    """What one handler has done in this process, and what it does now.

    is_running                     its consumer has not ended
    connections                    how many nsqds it is connected to
    received, finished, requeued   messages, as the consumer counts them
    in_flight                      messages received and not answered yet
    retried                        calls that failed, whose messages come again
    dead, dropped                  messages moved to the dead letters, and dropped. They count as finished too
    timed_out                      calls over their time limit
    is_hung                        calls over their time limit, which have not returned, take all its places
    refusals                       what its nsqds answer that refuse it, if none of them has its subscription
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
    is_hung: bool
    refusals: tuple[str, ...] = ()


class _Consumed(NamedTuple):
    """A handler, its consumer, and its calls in this process.

    watch      whether nsqd refuses the consumer for good
    pace       the rate of its calls, if it has one
    collector  of batches
    ended      the error of the consumer of an event loop, or None, once it has ended
    """

    handler: Handler
    calls: Calls
    consumer: Consumer
    watch: RefusalWatch
    pace: Pace | None
    collector: Collector | None = None
    ended: Future[BaseException | None] | None = None


class EventLoopStopped(NsqdError):
    """A handler, or what it called, has stopped the event loop of all coroutine functions."""

    def __init__(self) -> None:
        super().__init__("a handler, or a task of one, has called stop() of the event loop")


class EventLoop:
    """An event loop in a thread, for coroutine functions.

    failure  what ended the loop first, although it was not closed: None, an `EventLoopStopped`, or the exit that a task raised,
             which leaves `run_forever`. The loop goes on, so that its consumers can answer their messages and stop
    """

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._is_closed = False
        self._loop = asyncio.new_event_loop()
        THREADS.spawn("nsqd-py event loop", self._run)

    def _run(self) -> None:
        while not self._is_closed:
            ended_by = self._error_of_run()
            if not self._is_closed and self.failure is None:
                self.failure = ended_by
        self._loop.close()

    def _error_of_run(self) -> BaseException:
        """Run the loop until something ends it. Return what did."""
        try:
            self._loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - `Running.failure` has it
            return error
        return EventLoopStopped()

    def submit(self, coroutine: Any) -> Future[BaseException | None]:
        """Run the coroutine in the loop. Return the future of its error: one that a task raises may end the loop."""
        return asyncio.run_coroutine_threadsafe(_error_of(coroutine), self._loop)

    def run(self, coroutine: Any) -> None:
        """Run the coroutine in the loop, and wait for that. Raises its error."""
        error = self.submit(coroutine).result()
        if error is not None:
            raise error

    def close(self) -> None:
        self._is_closed = True
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._loop.stop)


async def _error_of(coroutine: Any) -> BaseException | None:
    try:
        await coroutine
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        return error
    return None


class Running:
    """The consumers of the handlers of an app, in this process. `App.start` makes it.

    They stop when one of them ends for good, that is by an error of itself and not of a handler, by `sys.exit()` in one, or
    because all its nsqds refuse it (`nsqd_py.work.refusals`); and when something ends the event loop of coroutine functions.
    """

    def __init__(
        self,
        handlers: Sequence[Handler],
        make_calls: Callable[[Handler, Pace | None, TimeLimits], Calls],
        settings: dict[str, Any],
        log: LineWriter,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Start a consumer for each handler, with these settings, and the scheduler. Raises as `Consumer`."""
        self._log = log
        self._limits = TimeLimits()
        self._loop: EventLoop | None = None
        if any(handler.is_async for handler in handlers):
            self._loop = EventLoop()
        self._consumed: list[_Consumed] = []
        self._stop_by_s: float | None = None
        self._failure: BaseException | None = None
        self._scheduler = scheduler
        if any(handler.time_limit_s is not None for handler in handlers):
            self._limits.start()
        try:
            for handler in handlers:
                if handler.rate is None:
                    pace = None
                else:
                    pace = Pace(handler.rate)
                calls = make_calls(handler, pace, self._limits)
                self._consumed.append(self._start(handler, calls, pace, settings))
            if scheduler is not None:
                scheduler.start()
        except BaseException:
            self.begin_to_stop(0)
            self.wait(0)
            raise

    def _start(
        self, handler: Handler, calls: Calls, pace: Pace | None, settings: dict[str, Any]
    ) -> _Consumed:
        # Retries and dead letters are those of `Calls`.
        given = {**settings, "max_in_flight": handler.max_in_flight, "max_attempts": 0}
        watch = RefusalWatch(str(handler))
        if handler.batch is not None:
            collector = Collector(handler.batch.most, handler.batch.within_s)
            if handler.is_async:
                handle = self._handle_in_loop(calls)
            else:
                handle = calls.handle_all
            collector.start(handler.concurrency, handle)
            consumer = Consumer(handler.topic, handler.channel, batch_handler=collector.put, **given)
            consumer.start()
            return _Consumed(handler, calls, consumer, watch, pace, collector)
        given["concurrency"] = handler.concurrency
        if self._loop is None or not handler.is_async:
            consumer = Consumer(handler.topic, handler.channel, calls.handle, **given)
            consumer.start()
            return _Consumed(handler, calls, consumer, watch, pace)
        in_loop = AsyncConsumer(handler.topic, handler.channel, calls.handle_async, **given)
        self._loop.run(in_loop.start())
        ended = self._loop.submit(in_loop.wait())
        return _Consumed(handler, calls, in_loop, watch, pace, ended=ended)

    def _handle_in_loop(self, calls: Calls) -> Callable[[list[Message]], None]:
        """Return what lets the event loop handle a batch, and waits for that."""
        loop = self._loop
        assert loop is not None
        return lambda messages: loop.run(calls.handle_all_async(messages))

    # ---- its end

    @property
    def failure(self) -> BaseException | None:
        """The error that ended a consumer or the event loop for good, or None."""
        return self._failure

    @property
    def is_stopping(self) -> bool:
        return self._stop_by_s is not None

    def begin_to_stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Request no more messages, and end when those in flight are answered, or after `timeout_s`. Returns at once.

        After the time-out `wait` returns the messages of calls that still run to their nsqds. Coroutines are cancelled, and
        threads go on. Signal handlers may call this, and a call with 0 shortens a stop.
        """
        stop_by_s = time.monotonic() + timeout_s
        if self._stop_by_s is None:
            self._stop_by_s = stop_by_s
        else:
            self._stop_by_s = min(self._stop_by_s, stop_by_s)
        for each in self._consumed:
            each.calls.begin_to_stop()
            if each.pace is not None:
                each.pace.end()
            if each.collector is not None:
                each.collector.hurry()
            each.consumer.begin_to_stop(timeout_s + _RETURNING_S)
        if self._scheduler is not None:
            self._scheduler.begin_to_stop(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all consumers have ended. Return False after the time-out. `failure` says if one ended for good."""
        if timeout_s is None:
            ends_s = None
        else:
            ends_s = time.monotonic() + timeout_s
        while self._is_running():
            self._note_refused()
            if self._failure is not None and self._stop_by_s is None:
                self.begin_to_stop()
            if self._stop_by_s is not None and time.monotonic() >= self._stop_by_s:
                self._return_all()
            if ends_s is not None and time.monotonic() >= ends_s:
                return False
            time.sleep(_POLL_S)
        self._close()
        return True

    def _is_running(self) -> bool:
        """True if a consumer or the scheduler has not ended. Notes the error that ended one, or the event loop."""
        self._note_loop()
        has_schedules = self._has_running_schedules()
        return bool(self._find_running()) or has_schedules

    def _return_all(self) -> None:
        """Return all messages to nsqd, which would wait for their time-out. Their consumers stay connected for a moment."""
        for each in self._consumed:
            each.calls.return_all()

    def _find_running(self) -> list[_Consumed]:
        """Return the handlers whose consumers have not ended."""
        return [each for each in self._consumed if not self._has_stopped(each)]

    def _has_running_schedules(self) -> bool:
        """True if the scheduler has not ended. Notes the error that ended it."""
        if self._scheduler is None:
            return False
        if self._failure is None:
            self._failure = self._scheduler.failure
        return self._scheduler.is_running

    def _has_stopped(self, each: _Consumed) -> bool:
        """True if a consumer has ended. Notes the error that ended it."""
        if each.collector is not None and each.collector.failure is not None:
            self._note(each, each.collector.failure)
        try:
            if each.ended is None:
                return each.consumer.wait(0)
            if not each.ended.done():
                return False
            error = each.ended.result()
            if error is not None:
                self._note(each, error)
            return True
        except BaseException as error:  # noqa: BLE001 - `failure` has it
            self._note(each, error)
            return True

    def _note_loop(self) -> None:
        """Note what ended the event loop, if something did."""
        ended_by = self._loop.failure if self._loop is not None else None
        if ended_by is not None and self._failure is None:
            self._failure = ended_by
            self._log.error("the event loop of the coroutine functions has ended: %r", ended_by)

    def _note_refused(self) -> None:
        """Notes that nsqd refuses a consumer for good, if one is."""
        if self._stop_by_s is not None:
            return
        for each in self._consumed:
            try:
                each.watch.end_if_refused(each.consumer)
            except ConsumerRefused as error:
                self._note(each, error)

    def _note(self, each: _Consumed, error: BaseException) -> None:
        """Remember the first error that ended a consumer. Log it, unless it names the consumer itself."""
        if self._failure is None:
            self._failure = error
        if self._failure is error and not isinstance(error, ConsumerRefused):
            self._log.error("the consumer of %s has ended: %r", each.handler, error)

    def _close(self) -> None:
        for each in self._consumed:
            if each.collector is not None:
                each.collector.close()
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

    @property
    def has_only_late(self) -> bool:
        """True if calls over their time limit are all that runs: no other call, no message in flight, no scheduler."""
        if self._has_running_schedules() or not any(each.calls.late_count for each in self._consumed):
            return False
        return all(
            each.calls.has_only_late and not each.consumer.stats().in_flight for each in self._consumed
        )

    def stats(self) -> list[HandlerStats]:
        """Return the statistics of each handler."""
        return [_stats(each) for each in self._consumed]


def _refusals(each: _Consumed, connections: int) -> tuple[str, ...]:
    if connections:
        return ()
    errors = each.consumer.unconnected().values()
    return tuple(str(error) for error in errors if is_refusal(error))


def _stats(each: _Consumed) -> HandlerStats:
    handler = each.handler
    counts = each.calls.counts
    stats = each.consumer.stats()
    return HandlerStats(
        *(handler.name, handler.topic, handler.channel, each.consumer.running, len(stats.connections)),
        *(stats.received, stats.finished, stats.requeued, stats.in_flight),
        *(counts.retried, counts.dead, counts.dropped, counts.timed_out),
        is_hung=each.calls.late_count >= handler.concurrency,
        refusals=_refusals(each, len(stats.connections)),
    )
