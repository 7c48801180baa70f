"""An app: the handlers that a program declares, and its publishing."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from nsqd_py.client.blocking.producer import Producer
from nsqd_py.client.consuming.base import STOP_TIMEOUT_S
from nsqd_py.client.errors import BadClientOption, PublishFailed, WrongPlace
from nsqd_py.client.lookup import addresses_of
from nsqd_py.client.options import Delay
from nsqd_py.client.process import log_for
from nsqd_py.runtime.logs.lines import LineWriter
from nsqd_py.work.calling import Calls
from nsqd_py.work.handlers import BadHandler, Batch, Handler
from nsqd_py.work.middleware import Middleware, fault_around, fault_of
from nsqd_py.work.once import Once
from nsqd_py.work.outcomes import Retry
from nsqd_py.work.pacing import Pace, TimeLimits
from nsqd_py.work.running import Running
from nsqd_py.work.timed.jobs import Jobs, Schedule, checked_name, has_coroutine_function, schedule_name
from nsqd_py.work.timed.later import Later, chained, delay_s_of, later_topic, refusal
from nsqd_py.work.timed.occurrences import BadSchedule, Cron, Every, Occurrences
from nsqd_py.work.timed.scheduler import Scheduler
from nsqd_py.work.values import encode

if TYPE_CHECKING:
    from nsqd_py.client.options import ClientOptions

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_DEFER_S = 3600.0  # nsqd's --max-defer-timeout and --max-req-timeout


class App:
    """Handlers of topics, and publishing to topics.

    handlers   the declared handlers, in order
    schedules  the declared schedules, by name
    clock      the time in seconds since the epoch
    watchers   middleware of who runs the app, outside of its own, and around the calls of `<app>.later` too
    """

    def __init__(
        self,
        name: str = "work",
        *,
        nsqd_tcp_addresses: str | Iterable[str] = (),
        lookupd_http_addresses: str | Iterable[str] = (),
        middleware: Sequence[Middleware] = (),
        options: ClientOptions | None = None,
        longest_defer_s: float = LONGEST_DEFER_S,
        log: LineWriter | None = None,
    ) -> None:
        """Nothing connects before `start` or the first publish.

        name                     the default of channels, and the first part of the topics of schedules and long delays
        nsqd_tcp_addresses, lookupd_http_addresses   as those of a Producer and a Consumer: it publishes to one of the nsqds,
                                 and consumes from all. Without any, those of the environment
        middleware               runs around each call of a handler or of the function of a schedule; the first one is the
                                 outermost. None runs around what forwards long delays
        options                  of all connections
        longest_defer_s          the longest delay that nsqd takes: its --max-defer-timeout and --max-req-timeout
        log                      has `info`, `warning`, ... as a logging.Logger; by default the logger `nsqd_py.work`

        Raises BadClientOption for a name that makes no topics, and for a middleware that is none.
        """
        self.name = checked_name(name)
        self.handlers: list[Handler] = []
        self.schedules: dict[str, Schedule] = {}
        self.longest_defer_s = longest_defer_s
        self.middleware = tuple(middleware)
        self.watchers: tuple[Middleware, ...] = ()
        for each in self.middleware:
            _refuse_what_is_none(each)
        self.clock: Callable[[], float] = time.time
        self.log = _log_of(log)
        self._settings: dict[str, Any] = {
            "nsqd_tcp_addresses": nsqd_tcp_addresses,
            "lookupd_http_addresses": lookupd_http_addresses,
            "options": options,
            "log": self.log,
        }

    @property
    def addresses(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The addresses of nsqds and of nsqlookupds. Raises BadClientOption if there are none, or one is invalid."""
        settings = self._settings
        return addresses_of("work app", settings["nsqd_tcp_addresses"], settings["lookupd_http_addresses"])

    @property
    def client_settings(self) -> dict[str, Any]:
        """The addresses, options and log of all clients of the app, as keywords of a Producer or Consumer."""
        return {**self._settings}

    # ---- handlers

    def handler(
        self,
        topic: str,
        *,
        channel: str | None = None,
        concurrency: int = 1,
        max_in_flight: int | None = None,
        time_limit_s: float | None = None,
        rate: float | None = None,
        batch: Batch | None = None,
        retry: Retry | None = None,
        once: Once | None = None,
    ) -> Callable[[F], F]:
        """Declare the decorated function as the handler of a topic. It can still be called as any function.

        A coroutine function runs on the event loop of the process, any other one in threads. One parameter gets the value
        of the body, by its annotation (`nsqd_py.work.values`); parameters with the annotations `Message` and `Headers` get
        these. The message is finished when the function returns, and comes again as `retry` says when it raises.

        channel        by default the name of the app
        concurrency    how many calls run at a time, in each process
        max_in_flight  how many messages are here and not answered; by default as many as calls can handle
        time_limit_s   a call that runs longer has failed. A coroutine function is cancelled. A thread cannot be ended: its
                       message is not touched any more and comes again, its result is ignored, and its place is taken until
                       it returns. Keep it below nsqd's --max-msg-timeout, 15 minutes, after which a message comes again
        rate           calls a second, in each process
        batch          the function gets lists of values
        retry          when the message comes again, and when it becomes a dead letter; by default `Retry()`, and no delay is
                       longer than longest_defer_s
        once           the id of the message and the work are in one transaction

        Raises BadHandler, whose text names the function, the topic and a remedy.
        """

        def declare(function: F) -> F:
            handler = Handler(
                function=function,
                topic=topic,
                channel=self.name if channel is None else channel,
                concurrency=concurrency,
                max_in_flight=max_in_flight,
                time_limit_s=time_limit_s,
                rate=rate,
                batch=batch,
                retry=Retry().within(self.longest_defer_s) if retry is None else retry,
                once=once,
                longest_defer_s=self.longest_defer_s,
            )
            self.add(handler)
            return function

        return declare

    def add(self, handler: Handler) -> None:
        """Declare a handler that was made without the decorator. Raises BadHandler."""
        self._refuse_another(handler)
        self._check_middleware(handler)
        self.handlers.append(handler)

    def _refuse_another(self, handler: Handler) -> None:
        """Raise BadHandler if another function has this channel: each would get a part of the messages."""
        for other in self.handlers:
            if (other.topic, other.channel) == (handler.topic, handler.channel):
                raise BadHandler(
                    f"handler {handler.name} of topic {handler.topic}: {other.name} has the channel {handler.channel} already, "
                    "and each would get a part of the messages: give it another channel"
                )

    def _check_middleware(self, handler: Handler) -> None:
        """Raise BadHandler if a middleware cannot run around the function of this handler."""
        fault = fault_around(self.middleware_of(handler), is_async=handler.is_async)
        if fault:
            handler.refuse(fault)

    def middleware_of(self, handler: Handler) -> tuple[Middleware, ...]:
        """Return what runs around the calls of a handler of this app."""
        if handler.topic == later_topic(self.name):
            return self.watchers
        return *self.watchers, *self.middleware

    def internal_handlers(self, *, has_schedules: bool) -> list[Handler]:
        """Return the handlers of the app itself, for this process."""
        internal = []
        if self.schedules:
            internal.append(Jobs(self.schedules, self.clock).handler(self.name, self.longest_defer_s))
        if has_schedules:
            later = Later(self.producer, self.longest_defer_s, self.clock)
            internal.append(later.handler(self.name))
        return internal

    # ---- schedules

    def every(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0
    ) -> Callable[[F], F]:
        """Call the decorated function at each multiple of this time since the epoch, once for all processes of the app.

        It takes no arguments. An occurrence that is missed because no process runs is made up for when one starts, once, with
        a WARNING. The retries and dead letters of the topic `<app>.due` are those of a handler. After a crash, an
        occurrence may run twice. If the function takes longer than the interval, the next call begins in the meantime. The
        clocks of machines should differ by a second at most. While processes start, an occurrence may be late by some
        seconds, and is skipped if the next one is due by then.

        The middleware of the app runs around it: by `around_async` if any schedule of the app is a coroutine function.

        Raises BadSchedule.
        """
        interval = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        return self._schedule(Every(interval))

    def cron(self, expression: str, *, tz: str = "UTC") -> Callable[[F], F]:
        """Call the decorated function at the times of a cron expression in a time zone; else as `every`.

        When clocks change, a fixed time that is skipped runs at the end of the gap, and one that comes twice runs once.
        Raises BadSchedule, and ImportError without cronsim.
        """
        return self._schedule(Cron(expression, tz))

    def _schedule(self, occurrences: Occurrences) -> Callable[[F], F]:
        def declare(function: F) -> F:
            name = schedule_name(function)
            if name in self.schedules:
                raise BadSchedule(f"schedule {name}: there is one with this name already: rename a function")
            schedule = Schedule(name, function, occurrences)
            is_async = has_coroutine_function([*self.schedules.values(), schedule])
            fault = fault_around(self.middleware, is_async=is_async)
            if fault:
                raise BadSchedule(f"schedule {name}: {fault}")
            self.schedules[name] = schedule
            return function

        return declare

    # ---- publishing

    @property
    def producer(self) -> Producer:
        """The producer of this process, which all handlers share. Raises BadClientOption without addresses."""
        state = vars(self)
        if "_producer" not in state:
            # Two threads may both make one. The second one is dropped, before it has connected.
            state.setdefault("_producer", Producer(**self._settings))
        found: Producer = state["_producer"]
        return found

    def publish(self, topic: str, value: object, *, defer_s: Delay = 0, at: datetime | None = None) -> None:
        """Publish a value, and return when nsqd has stored it: bytes as they are, a str in UTF-8, others as JSON.

        It is delivered after `defer_s`, or at the time `at`, which has a time zone. A delay longer than `longest_defer_s`
        waits in the topic `<app>.later`, and needs a process that runs the schedules of this app. Raises as
        `Producer.publish`; TypeError, and ValueError for a NaN, for a value that cannot be published; BadClientOption for a delay
        that cannot be; WrongPlace in a coroutine function.
        """
        placed = self._placed(topic, encode(value), defer_s, at)
        try:
            self._publish(*placed)
        except WrongPlace as error:
            if _is_in_task():
                raise WrongPlace(
                    "App.publish would stop the asyncio event loop of this thread: use await app.publish_async(…)"
                ) from error
            raise

    def _publish(self, topic: str, body: bytes, delay_s: float) -> None:
        try:
            self.producer.publish(topic, body, defer_s=delay_s)
        except PublishFailed as error:
            raise refusal(error, delay_s) from error

    async def publish_async(
        self, topic: str, value: object, *, defer_s: Delay = 0, at: datetime | None = None
    ) -> None:
        """Do as `publish`, in an event loop."""
        topic, body, delay_s = self._placed(topic, encode(value), defer_s, at)
        try:
            future = self.producer.publish_soon(topic, body, _ignore, defer_s=delay_s)
        except WrongPlace:  # it would have to wait for room
            await asyncio.to_thread(self._publish, topic, body, delay_s)
            return
        try:
            await asyncio.wrap_future(future)
        except PublishFailed as error:
            raise refusal(error, delay_s) from error

    def _placed(
        self, topic: str, body: bytes, defer_s: Delay, at: datetime | None
    ) -> tuple[str, bytes, float]:
        """Return the topic, the body and the delay of what to publish now. Raises BadClientOption and BadName."""
        now_s = self.clock()
        delay_s = delay_s_of(defer_s, at, now_s)
        if delay_s <= self.longest_defer_s:
            return topic, body, delay_s
        return *chained(self.name, topic, body, now_s + delay_s), 0.0

    # ---- running

    def start(self, *, has_schedules: bool = True) -> Running:
        """Start the consumers of all handlers in this process, and return at once. After a fork, call it in the child.

        has_schedules  this process runs the schedules of the app too: one process of each machine should
        """
        internal = self.internal_handlers(has_schedules=has_schedules)
        scheduler = None
        if has_schedules and self.schedules:
            scheduler = self._make_scheduler()
        return Running([*self.handlers, *internal], self._make_calls, self._settings, self.log, scheduler)

    def _make_scheduler(self) -> Scheduler:
        return Scheduler(
            self.name,
            {name: schedule.occurrences for name, schedule in self.schedules.items()},
            producer=self.producer,
            settings=self._settings,
            longest_wait_s=self.longest_defer_s,
            log=self.log,
        )

    def _make_calls(self, handler: Handler, pace: Pace | None, limits: TimeLimits) -> Calls:
        self._check_middleware(handler)
        return Calls(
            handler,
            store=self.producer,
            log=self.log,
            middleware=self.middleware_of(handler),
            pace=pace,
            limits=limits,
        )

    def run(self, stop_timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Run all handlers in this process until SIGTERM or Ctrl-C: the first one finishes what runs, the second one returns it.

        Raises the error that ended a consumer for good: ConsumerRefused if nsqd refuses it.
        """
        signals: list[int] = []  # also those that come while the consumers start: a handler may run then
        started: list[Running] = []

        def follow_signals() -> None:
            for running in started:
                running.begin_to_stop(0 if len(signals) > 1 else stop_timeout_s)

        def stop(number: int, frame: FrameType | None) -> None:
            signals.append(number)
            follow_signals()

        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, stop)
            signal.signal(signal.SIGINT, stop)
        running = self.start()
        started.append(running)
        if signals:
            follow_signals()
        running.wait()
        self.close()
        if running.failure is not None:
            raise running.failure

    def close(self, timeout_s: float | None = None) -> None:
        """Store what was published, and close the connections of publishing. The next publish opens new ones."""
        producer: Producer | None = vars(self).pop("_producer", None)
        if producer is not None:
            producer.close(timeout_s)


def _refuse_what_is_none(middleware: object) -> None:
    """Raise BadClientOption if this is no middleware."""
    fault = fault_of(middleware)
    if fault:
        raise BadClientOption(f"middleware: {fault}")


def _is_in_task() -> bool:
    """True if an event loop of this thread runs the caller."""
    try:
        return asyncio.current_task() is not None
    except RuntimeError:  # no event loop runs here
        return False


def _ignore(error: Exception | None) -> None:
    """Leave the error of a publish to its future."""


def _log_of(log: LineWriter | None) -> LineWriter:
    if log is not None:
        return log_for(log)
    import logging  # slow to import

    return logging.getLogger("nsqd_py.work")
