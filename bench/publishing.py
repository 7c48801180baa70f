"""The load generator: processes that publish pre-encoded requests over raw sockets and count the answers.

The same code drives every server of `bench/peers`. In a *closed loop*, each connection keeps `window` requests
unanswered. In an *open loop*, requests leave at fixed instants, whether or not earlier ones were answered.
"""

import gc
import multiprocessing
import os
import select
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from threading import BrokenBarrierError

from bench.peers.protocol import PublisherProtocol
from bench.peers.setups import SETUPS, protocol_of
from bench.percentiles import Schedule
from bench.pipeline import UNLIMITED, Lane, Pipeline
from bench.run import LoadError, Stopwatch
from bench.wire import ProtocolError
from bench.workload import Workload

_WARM_UP_S = 0.2
_READY_WITHIN_S = 600.0  # Go's nsqd takes 110 s for 10,000 topics: it writes nsqd.dat for each one
_ANSWERED_WITHIN_S = 20.0
# A generator that shares the processors with the server needs no more than half of them.
_PROCESSES = max((os.cpu_count() or 1) // 2, 1)


@dataclass(slots=True)
class Published:
    """What one process, or all of them, did after the warm-up.

    warm_up_s    time that the first messages took: one to each topic, at least
    lateness_ns  how long after their instants the requests of an open loop left: what the generator itself adds
    """

    messages: int
    elapsed_s: float
    cpu_s: float
    warm_up_s: float
    latencies_ns: "array[int]" = field(default_factory=lambda: array("q"))
    lateness_ns: "array[int]" = field(default_factory=lambda: array("q"))


def publish(
    port: int, server_pid: int, setup: str, workload: Workload, *, seconds: float = UNLIMITED, messages: int = UNLIMITED
) -> tuple[Stopwatch, Published]:
    """Publish for `seconds`, or this number of messages. Raises LoadError."""
    context = multiprocessing.get_context("fork")
    parts = workload.divided(_PROCESSES)
    barrier = context.Barrier(len(parts) + 1)
    results: SimpleQueue[Published | str] = context.SimpleQueue()
    share = -(-messages // len(parts))
    children = [
        context.Process(target=_child, args=(port, setup, part, seconds, share, barrier, results)) for part in parts
    ]
    protocol = protocol_of(SETUPS[setup])
    with protocol.connect(port) as sock:
        protocol.declare(sock, topic_names(workload.topics))
    for child in children:
        child.start()
    try:
        barrier.wait(_READY_WITHIN_S)
        watch = Stopwatch(server_pid)
    except BrokenBarrierError:
        watch = None
    found = [results.get() for _ in children]
    if watch is not None:
        watch.stop()
    for child in children:
        child.join()
    errors = [one for one in found if isinstance(one, str)]
    if watch is None or errors:
        raise LoadError("; ".join(dict.fromkeys(errors)))
    published = _together([one for one in found if not isinstance(one, str)])
    watch.elapsed_s = published.elapsed_s
    watch.others_cpu_s = max(watch.others_cpu_s + watch.client_cpu_s - published.cpu_s, 0.0)
    watch.client_cpu_s = published.cpu_s
    return watch, published


def topic_names(count: int) -> list[str]:
    """Return names of the same length."""
    return [f"topic{number:05d}" for number in range(count)]


def _together(parts: list[Published]) -> Published:
    """Return the sums, the longest times, and all latencies."""
    whole = Published(
        sum(part.messages for part in parts), max(part.elapsed_s for part in parts),
        sum(part.cpu_s for part in parts), max(part.warm_up_s for part in parts),
    )  # fmt: skip
    for part in parts:
        whole.latencies_ns.extend(part.latencies_ns)
        whole.lateness_ns.extend(part.lateness_ns)
    return whole


def _child(
    port: int, setup: str, workload: Workload, seconds: float, messages: int, barrier: Barrier,
    results: "SimpleQueue[Published | str]",
) -> None:  # fmt: skip
    gc.disable()
    try:
        results.put(_publish(port, protocol_of(SETUPS[setup]), workload, seconds, messages, barrier))
    except (LoadError, ProtocolError, OSError) as error:
        barrier.abort()
        results.put(str(error) or type(error).__name__)
    except BrokenBarrierError:
        results.put("another process of the generator failed, or was not ready in time")


def _publish(
    port: int, protocol: type[PublisherProtocol], workload: Workload, seconds: float, messages: int, barrier: Barrier
) -> Published:
    lanes = _lanes(port, protocol, workload)
    pipeline = Pipeline(lanes)
    started_s = time.perf_counter()
    pipeline.send(commands=max(workload.topics, workload.connections * workload.window))
    warm_up_s = time.perf_counter() - started_s
    if messages == UNLIMITED:
        pipeline.send(commands=UNLIMITED, seconds=_WARM_UP_S)
    barrier.wait()
    started_s, cpu_s = time.perf_counter(), time.process_time()
    if workload.rate_per_s:
        published = _open_loop(lanes, workload.rate_per_s, seconds)
        published.warm_up_s = warm_up_s
    else:
        requests = pipeline.send(commands=-(-messages // workload.batch), seconds=seconds)
        published = Published(requests * workload.batch, 0, 0, warm_up_s)
    published.elapsed_s = time.perf_counter() - started_s
    published.cpu_s = time.process_time() - cpu_s
    pipeline.close()
    return published


def _lanes(port: int, protocol: type[PublisherProtocol], workload: Workload) -> list[Lane]:
    """Connect all publishers. Each begins with another topic."""
    body = bytes(ord("a") + number % 26 for number in range(workload.size_bytes))
    names = topic_names(workload.topics)
    lanes = []
    for number in range(workload.connections):
        sock = protocol.connect(port)
        first = number * len(names) // workload.connections
        requests = [protocol.request(sock, name, body, workload.batch) for name in (*names[first:], *names[:first])]
        answers = protocol.answers(workload.batch)
        lanes.append(Lane(sock, requests, workload.window, protocol.counter(), answers_per_request=answers))
    return lanes


class _OpenLane:
    """A lane whose requests leave at the instants of a schedule."""

    __slots__ = ("_acked_before", "_answered", "_lane", "_schedule", "_sent")

    def __init__(self, lane: Lane, schedule: Schedule) -> None:
        self._lane = lane
        self._schedule = schedule
        self._acked_before = lane.acked
        self._sent = self._answered = 0
        lane.window = UNLIMITED

    @property
    def unanswered(self) -> int:
        return self._sent - self._answered

    def send_due(self, now_ns: int, lateness_ns: "array[int]") -> None:
        due = self._schedule.due(now_ns)
        if due > self._sent:
            lateness_ns.extend(now_ns - self._schedule.intended_ns(number) for number in range(self._sent, due))
            self._sent = due
            self._lane.limit = self._acked_before + due
            self._lane.push()

    def receive(self, latencies_ns: "array[int]", clock: Callable[[], int]) -> None:
        self._lane.pull()
        now_ns = clock()
        answered = self._lane.acked - self._acked_before
        latencies_ns.extend(now_ns - self._schedule.intended_ns(number) for number in range(self._answered, answered))
        self._answered = answered
        self._lane.push()


def _open_loop(lanes: list[Lane], rate_per_s: float, seconds: float) -> Published:
    """Send at this rate for `seconds`, then wait for the answers. Raises LoadError if they do not arrive."""
    published = Published(0, 0, 0, 0)
    clock = time.perf_counter_ns
    start_ns = clock()
    poll = select.epoll()
    open_lanes = {}
    for number, lane in enumerate(lanes):
        open_lanes[lane.sock.fileno()] = _OpenLane(lane, Schedule(start_ns, rate_per_s, number, len(lanes)))
        poll.register(lane.sock, select.EPOLLIN)
    every = Schedule(start_ns, rate_per_s)
    in_turn = list(open_lanes.values())
    end_ns, sent = start_ns + int(seconds * 1e9), 0
    while (now_ns := clock()) < end_ns:
        due = every.due(now_ns)
        # Lanes whose turn has come since the last look; after a long wait, each of them once.
        for number in range(sent, min(due, sent + len(in_turn))):
            in_turn[number % len(in_turn)].send_due(now_ns, published.lateness_ns)
        sent = due
        # `select` waits for microseconds, where `epoll` rounds up to a millisecond.
        select.select([poll], [], [], max(every.intended_ns(sent) - clock(), 0) / 1e9)
        for number, _ in poll.poll(0):
            open_lanes[number].receive(published.latencies_ns, clock)
    deadline_s = time.perf_counter() + _ANSWERED_WITHIN_S
    while any(lane.unanswered for lane in in_turn):
        if time.perf_counter() > deadline_s:
            raise LoadError(f"the server is {sum(lane.unanswered for lane in in_turn)} messages behind")
        for number, _ in poll.poll(_ANSWERED_WITHIN_S):
            open_lanes[number].receive(published.latencies_ns, clock)
    poll.close()
    published.messages = len(published.latencies_ns)
    return published
