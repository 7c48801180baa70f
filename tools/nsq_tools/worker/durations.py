"""How long the calls of handlers take in a child; and its report."""

from __future__ import annotations

from bisect import bisect_left
from threading import Lock
from time import perf_counter

from nsq_tools.worker.reports import BOUNDS_S, HandlerCounts, Report
from nsqd_py.client.message import Message
from nsqd_py.work.dead_letters import describe
from nsqd_py.work.handlers import Handler
from nsqd_py.work.middleware import Call, Middleware
from nsqd_py.work.refusals import ConsumerRefused
from nsqd_py.work.running import HandlerStats, Running

_NO_CALLS = (0,) * (len(BOUNDS_S) + 1)

_Key = tuple[str, str, str]  # handler, topic, channel


class Durations(Middleware):
    """Measures all calls, with what other middleware does around them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[_Key, list[int]] = {}
        self._total_s: dict[_Key, float] = {}

    def around(self, message: Message, call: Call) -> None:
        began_s = perf_counter()
        try:
            call()
        finally:
            self._add(call.handler, perf_counter() - began_s)

    async def around_async(self, message: Message, call: Call) -> None:
        began_s = perf_counter()
        try:
            await call()
        finally:
            self._add(call.handler, perf_counter() - began_s)

    def of(self, key: _Key) -> tuple[float, tuple[int, ...]]:
        """Return the time of all calls of a handler, and the number of calls up to each bound."""
        with self._lock:
            return self._total_s.get(key, 0.0), tuple(self._counts.get(key, _NO_CALLS))

    def _add(self, handler: Handler, took_s: float) -> None:
        key = handler.name, handler.topic, handler.channel
        with self._lock:
            if key not in self._counts:
                self._counts[key] = [*_NO_CALLS]
                self._total_s[key] = 0.0
            self._counts[key][bisect_left(BOUNDS_S, took_s)] += 1
            self._total_s[key] += took_s


def report_of(running: Running, durations: Durations) -> Report:
    """Return what the consumers of this process have done so far, and the error that ended one for good."""
    all_stats = running.stats()
    counts = {_shown(stats): _counts_of(stats, durations) for stats in all_stats}
    stopped = tuple(_shown(stats) for stats in all_stats if not stats.is_running)
    hung = tuple(_shown(stats) for stats in all_stats if stats.is_hung)
    refused = tuple(f"{_shown(stats)} is refused: {each}" for stats in all_stats for each in stats.refusals)
    return Report(counts, stopped, _shown_failure(running.failure), hung, refused)


def _shown_failure(failure: BaseException | None) -> str:
    if failure is None:
        return ""
    if isinstance(failure, ConsumerRefused):
        return str(failure)
    return describe(failure)


def _shown(stats: HandlerStats) -> str:
    return f"{stats.name} of {stats.topic}/{stats.channel}"


def _counts_of(stats: HandlerStats, durations: Durations) -> HandlerCounts:
    key = stats.name, stats.topic, stats.channel
    total_s, counts = durations.of(key)
    return HandlerCounts(
        *key,
        handled=stats.finished - stats.dead,
        failed=stats.retried + stats.dead,
        retried=stats.retried,
        dead_letters=stats.dead,
        timed_out=stats.timed_out,
        in_flight=stats.in_flight,
        connections=stats.connections,
        total_s=total_s,
        durations=counts,
    )
