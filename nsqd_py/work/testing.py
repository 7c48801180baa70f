"""Handlers in tests: called in this process, without a server, with the same decoding, retries and time limits.

    outcome = run(bill, Order(id=1), attempts=6)        # Finished, RequeueAfter, DeadLetter or Dropped

    with Harness(app) as harness:
        app.publish("orders", Order(id=1), defer_s=60)
        results = harness.run(for_s=3600)
        assert harness.dead_letters("orders") == []

Long delays arrive and schedules run, at their times within `run`. A publish is refused as by a producer: in a coroutine
function, unless it is awaited; to a topic that cannot be; without a body. The size of bodies is not limited.

Time is that of a `Clock`. A plain function whose test advances the clock beyond its time limit has exceeded it. In a coroutine
function a sleep takes no time, and advances the clock; if it waits for sockets, time passes. Rates are not applied.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from selectors import DefaultSelector, SelectorKey
from typing import Any, NamedTuple, Self

from nsqd_py.client.message import AlreadyAnswered, Message
from nsqd_py.client.options import seconds_of
from nsqd_py.client.process import refuse_in_event_loop
from nsqd_py.client.publishing.publish import single
from nsqd_py.protocol.envelope import unwrap, wrap
from nsqd_py.protocol.names import dead_letter_topic
from nsqd_py.work.app import App
from nsqd_py.work.calling import Calls
from nsqd_py.work.handlers import Handler, handler_of
from nsqd_py.work.middleware import Middleware, fault_around
from nsqd_py.work.outcomes import Finished, Outcome, RequeueAfter
from nsqd_py.work.pacing import Limited, TimeLimits
from nsqd_py.work.timed.later import later_topic
from nsqd_py.work.timed.scheduler import due_topic, job_of
from nsqd_py.work.values import encode

_FIRST_S = 1_800_000_000.0
_STEP_S = 1e-6
_LOG = logging.getLogger("nsqd_py.work")


class Clock:
    """A time in seconds since the epoch, which only `advance` changes."""

    def __init__(self, now_s: float = _FIRST_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, by_s: float) -> None:
        self.now_s += by_s


class _Delivery:
    """One delivery of a message, in the place of its `MessageBatch`: it has the answer to the message."""

    nsqd = "testing"
    is_live = True

    def __init__(self, topic: str, channel: str) -> None:
        self.topic = topic
        self.channel = channel
        self.answer: Finished | RequeueAfter | None = None

    def is_open(self, message_id: bytes) -> bool:
        return self.answer is None

    def finish_one(self, message_id: bytes) -> None:
        self._answer(message_id, Finished())

    def requeue_one(self, message_id: bytes, attempts: int, delay_s: Any, *, backoff: bool) -> None:
        self._answer(message_id, RequeueAfter(0.0 if delay_s is None else seconds_of(delay_s)))

    def _answer(self, message_id: bytes, answer: Finished | RequeueAfter) -> None:
        if self.answer is not None:
            raise AlreadyAnswered(f"message {message_id.decode()} was answered before")
        self.answer = answer

    def touch_some(self, ids: Sequence[bytes]) -> None:
        """Do nothing: no message times out here."""


class _Limits(TimeLimits):
    """Time limits without a thread."""

    def end(self, call: Limited) -> bool:
        self.expire(self._clock())
        return super().end(call)


class _Calls(Calls):
    """Calls that remember the outcome of each message."""

    outcomes: dict[bytes, Outcome]

    def answer(self, message: Message, body: bytes, outcome: Outcome) -> None:
        self.outcomes[message.id] = outcome
        super().answer(message, body, outcome)


class _Selector(DefaultSelector):
    """A selector that advances the clock instead of waiting, unless there are sockets besides that of its loop."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or len(self.get_map()) > 1:
            began_s = time.monotonic()
            ready = super().select(timeout)
            self._clock.advance(time.monotonic() - began_s)
        else:
            self._clock.advance(timeout)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with the time of a clock."""

    def __init__(self, clock: Clock) -> None:
        self._test_clock = clock
        super().__init__(_Selector(clock))
        # A float of today's time has steps of 0.24 us: with the resolution of a real clock, a timer might never be due.
        self._clock_resolution = _STEP_S

    def time(self) -> float:
        return self._test_clock()


class Result(NamedTuple):
    """What became of one message at one attempt."""

    handler: Handler
    body: bytes
    attempts: int
    outcome: Outcome


class _Waiting(NamedTuple):
    """A message that waits for its time, in the channel of one handler."""

    due_s: float
    number: int
    handler: Handler
    body: bytes
    attempts: int


class _Caller:
    """Calls handlers with messages."""

    def __init__(
        self,
        clock: Clock,
        store: Any,
        middleware_of: Callable[[Handler], Sequence[Middleware]],
        chance: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._store = store
        self._middleware_of = middleware_of
        self._chance = chance

    def call(self, handler: Handler, arrived: Sequence[_Waiting]) -> list[Result]:
        """Call the handler once, with the messages of one call. Return what became of each.

        Raises BadHandler if a middleware cannot run around it.
        """
        middleware = self._middleware_of(handler)
        fault = fault_around(middleware, is_async=handler.is_async)
        if fault:
            handler.refuse(fault)
        now_ns = round(self._clock() * 1e9)
        calls = _Calls(
            handler,
            store=self._store,
            log=_LOG,
            limits=_Limits(self._clock),
            middleware=middleware,
            chance=self._chance,
            clock_ns=lambda: round(self._clock() * 1e9),
        )
        calls.outcomes = {}
        deliveries: list[Any] = [_Delivery(handler.topic, handler.channel) for _ in arrived]
        messages = [
            Message(b"%016x" % each.number, each.body, now_ns, each.attempts, delivery)
            for each, delivery in zip(arrived, deliveries, strict=True)
        ]
        if handler.is_async:
            self._run_in_new_loop(calls.handle_all_async(messages))
        else:
            calls.handle_all(messages)
        results = []
        for each, message, delivery in zip(arrived, messages, deliveries, strict=True):
            outcome = calls.outcomes.get(message.id) or delivery.answer or Finished()
            if isinstance(
                delivery.answer, RequeueAfter
            ):  # of the handler itself, or with a delay that was cut
                outcome = RequeueAfter(delivery.answer.delay_s, outcome.error)
            results.append(Result(handler, each.body, each.attempts, outcome))
        return results

    def _run_in_new_loop(self, calls: Coroutine[Any, Any, None]) -> None:
        """Run the calls; in a thread of its own if this one has an event loop, as in tests that use Playwright."""
        if asyncio._get_running_loop() is None:
            self._run(calls)
            return
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._run, calls).result()

    def _run(self, calls: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=lambda: _Loop(self._clock)) as runner:
            runner.run(calls)


class _Letters:
    """A store that always stores."""

    def publish_soon(self, topic: str, body: bytes, on_done: Any = None, *, defer_s: Any = 0) -> Any:
        on_done(None)


def run(
    handler: Handler | Callable[..., Any],
    value: object,
    *,
    attempts: int = 1,
    headers: dict[str, str] | None = None,
    clock: Clock | None = None,
    middleware: Sequence[Middleware] = (),
    chance: float = 0.5,
) -> Outcome:
    """Call a handler with one message, and return what becomes of it.

    value    as for `App.publish`: bytes are the body
    headers  of its envelope, if there is one
    chance   places the delay of a retry within its jitter

    Raises SystemExit and KeyboardInterrupt of the handler, and BadHandler if a middleware cannot run around it.
    """
    if headers is None:
        body = encode(value)
    else:
        body = wrap(encode(value), headers)
    clock = clock or Clock()
    found = handler_of(handler)
    caller = _Caller(clock, _Letters(), lambda handler: middleware, lambda: chance)
    waiting = _Waiting(clock(), 1, found, body, attempts)
    (result,) = caller.call(found, [waiting])
    return result.outcome


def _is_in_handler() -> bool:
    """True in the event loop of a coroutine function that is called here. A test may have a loop of its own."""
    try:
        return isinstance(asyncio.get_running_loop(), _Loop)
    except RuntimeError:
        return False


class Harness:
    """The queues and schedules of an app, in memory: what it publishes while this is open waits for `run`."""

    def __init__(self, app: App, *, clock: Clock | None = None, chance: float = 0.5) -> None:
        """`chance` places the delays of retries within their jitter."""
        self.clock = clock or Clock()
        self._app = app
        self._chance = chance
        self._caller = _Caller(self.clock, self, app.middleware_of, lambda: chance)
        self._waiting: list[_Waiting] = []
        self._published: list[tuple[str, bytes]] = []
        self._numbers = count(1)
        self._internal: list[Handler] = []
        self._next_due_s: dict[str, int] = {}  # of schedules

    def __enter__(self) -> Self:
        self._app_state = {name: vars(self._app).get(name) for name in ("_producer", "clock")}
        vars(self._app).update(_producer=self, clock=self.clock)
        self._look_at_schedules()
        return self

    def __exit__(self, *error: object) -> None:
        vars(self._app).update(self._app_state)
        if self._app_state["_producer"] is None:
            del vars(self._app)["_producer"]

    # ---- in the place of a producer

    def publish(self, topic: str, body: bytes, *, defer_s: Any = 0) -> None:
        """Store a message for all handlers of its topic. Raises as `Producer.publish`."""
        if _is_in_handler():
            refuse_in_event_loop("publish")
        self._store(topic, body, defer_s)

    def _store(self, topic: str, body: bytes, defer_s: Any) -> None:
        single(topic, body, defer_s)  # raises for what no nsqd takes
        self._published.append((topic, body))
        due_s = self.clock() + seconds_of(defer_s)
        for handler in (*self._app.handlers, *self._internal):
            if handler.topic == topic:
                heapq.heappush(self._waiting, _Waiting(due_s, next(self._numbers), handler, body, 1))

    def publish_soon(self, topic: str, body: bytes, on_done: Any = None, *, defer_s: Any = 0) -> Future[None]:
        """Store a message as `publish`, and do not wait. Return a future that is done."""
        self._store(topic, body, defer_s)
        if on_done is not None:
            on_done(None)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    # ---- for tests

    def run(self, for_s: float = 0.0) -> list[Result]:
        """Handle all messages and jobs that are due within this time, in order, and advance the clock by it.

        Return their results: those of jobs have the topic `<app>.due`, and the forwarding of long delays has none. Of the
        occurrences of a schedule that a test has advanced the clock over, one is made up for.
        """
        ends_s = self.clock() + for_s
        self._look_at_schedules()
        self._make_up()
        results: list[Result] = []
        while self._next_s() <= ends_s:
            self.clock.now_s = max(self.clock(), self._next_s())
            self._publish_jobs()
            results += self._call_next()
        self.clock.now_s = max(self.clock(), ends_s)
        later = later_topic(self._app.name)
        return [result for result in results if result.handler.topic != later]

    def _next_s(self) -> float:
        """Return when the next message or job is due."""
        if self._waiting:
            messages_s = self._waiting[0].due_s
        else:
            messages_s = math.inf
        return min(messages_s, *self._next_due_s.values(), math.inf)

    def _look_at_schedules(self) -> None:
        """Take in the schedules that were declared in the meantime."""
        self._internal = self._app.internal_handlers(has_schedules=True)
        for name, schedule in self._app.schedules.items():
            if name not in self._next_due_s:
                self._next_due_s[name] = schedule.occurrences.next_after(self.clock())

    def _make_up(self) -> None:
        """Publish one job for each schedule with occurrences that are over."""
        for name, due_s in self._next_due_s.items():
            if due_s < self.clock():
                self._publish_job(name, due_s, after_s=self.clock())

    def _publish_jobs(self) -> None:
        """Publish the jobs of all occurrences until now."""
        for name in self._next_due_s:
            while (due_s := self._next_due_s[name]) <= self.clock():
                self._publish_job(name, due_s, after_s=due_s)

    def _publish_job(self, name: str, due_s: int, *, after_s: float) -> None:
        self._store(due_topic(self._app.name), job_of(name, due_s), 0)
        occurrences = self._app.schedules[name].occurrences
        self._next_due_s[name] = occurrences.next_after(after_s)

    def _call_next(self) -> list[Result]:
        first = heapq.heappop(self._waiting)
        arrived = [first]
        if first.handler.batch is not None:
            due = [
                each for each in self._waiting if each.handler is first.handler and each.due_s <= self.clock()
            ]
            arrived += sorted(due)[: first.handler.batch.most - 1]
            self._waiting = [each for each in self._waiting if each not in arrived]
            heapq.heapify(self._waiting)
        results = self._caller.call(first.handler, arrived)
        for each, result in zip(arrived, results, strict=True):
            if isinstance(result.outcome, RequeueAfter):
                due_s = self.clock() + result.outcome.delay_s
                again = each._replace(due_s=due_s, attempts=each.attempts + 1)
                heapq.heappush(self._waiting, again)
        return results

    @property
    def waiting_count(self) -> int:
        """How many messages are not finished, those with long delays too."""
        return len(self._waiting)

    def published(self, topic: str) -> list[bytes]:
        """Return the bodies that were published to a topic."""
        return [body for its_topic, body in self._published if its_topic == topic]

    def dead_letters(self, topic: str) -> list[tuple[bytes, dict[str, str]]]:
        """Return the bodies and the headers of the dead letters of a topic."""
        return [unwrap(body) for body in self.published(dead_letter_topic(topic))]
