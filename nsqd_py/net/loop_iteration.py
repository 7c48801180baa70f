"""The end of an event-loop iteration, where batched work is done.

While the loop dispatches readable sockets, topics with new publishes, channels with new messages and connections with
output register here. At the end of the iteration each topic writes its publishes to the log at once, then each connection
sends its answers in one call, then channels deliver. So batches grow with the load, and a single message is
not delayed.

A channel with few new messages may wait while other input is ready, for 1 ms at most: the messages of several
iterations then take one send and one read of FINs for each consumer. With 16 waiting publishers and 4 consumers this
saves 3 to 4 of 18 us of processor time a message.

Input that takes long continues in later iterations, from the backlog.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from select import POLLIN, poll
from time import monotonic_ns
from typing import Any, Protocol

from gevent import getcurrent

from nsqd_py.runtime.iteration_end import Committer, Deliverer, Flusher
from nsqd_py.runtime.logs.bugs import report_bug
from nsqd_py.runtime.logs.lines import DaemonLog
from nsqd_py.runtime.pacing import Turns

# Time for all workers together in one iteration of the event loop.
SLICE_S = 0.002
# Part of the time that all slow workers share: connections that cause very many errors.
SLOW_PART = 0.05
_SLOW_SLICE_S = 0.0005
# Time for the input of one read: while the backlog is empty, and while it is not.
_QUIET_S = 0.002
_BUSY_S = 0.0002
# Time for all input of one iteration, from the first that is not quick on. With SLICE_S it is 5 ms.
_INPUT_S = 0.003
_LATE_AFTER_NS = 3_000_000
# The longest time that a delivery waits while other input is ready.
_LONGEST_POSTPONEMENT_NS = 1_000_000


class Worker(Protocol):
    """A connection with input that is not handled yet.

    is_light  True if its last input was short
    """

    @property
    def is_light(self) -> bool: ...

    def work(self) -> bool:
        """Handle some input, for about 0.2 ms; return True if more can be handled now. Raises nothing."""


class Backlog:
    """Connections with unhandled input. They take turns, for 2 ms of each event-loop iteration.

    Half of that time is for connections with short input, as long as there are any, so that a thousand clients that
    send much at once do not delay a small request.

    slice_s  time that a connection may spend at once on the input of one read
    input_s  time for the input of one iteration, without that of the backlog
    is_scheduled  True while connections wait here
    """

    def __init__(self, loop: Any) -> None:
        self.slice_s = _QUIET_S
        self.input_s = _INPUT_S
        self._workers: OrderedDict[Worker, None] = OrderedDict()
        self._light: OrderedDict[Worker, None] = OrderedDict()
        self._iteration = -1
        self._input_until_s = 0.0
        self.is_working = False
        self._slow: OrderedDict[Worker, None] = OrderedDict()
        self._loop = loop
        self._timer = loop.timer(0.0)
        self._slow_timer: Any = None
        self.is_scheduled = False

    def add_slow(self, worker: Worker) -> None:
        """Add a worker to the slow ones, which share SLOW_PART of the time."""
        self._workers.pop(worker, None)
        self._light.pop(worker, None)
        self._slow[worker] = None
        if self._slow_timer is None:
            self._rest_of_slow(_SLOW_SLICE_S)

    def add(self, worker: Worker) -> None:
        """Add a worker; its `work` is called when its turn comes."""
        self._slow.pop(worker, None)
        self._queue_of(worker)[worker] = None
        self.slice_s = _BUSY_S
        if not self.is_scheduled:
            self.is_scheduled = True
            self._timer.start(self._work)

    def has_time_for(self, worker: Worker) -> bool:
        """True if input of this connection may be handled now, before that of the connections that wait here."""
        return (worker.is_light or not self._workers) and self.has_time()

    def has_time(self) -> bool:
        """True if input that may take long can still be handled in this iteration, whose time begins with the first.

        What a connection reads in its turn is not handled in the same turn: it may be too much for a light one.
        """
        if self.is_working:
            return False
        now_s = time.perf_counter()
        iteration: int = self._loop.iteration
        if iteration != self._iteration:
            self._iteration = iteration
            self._input_until_s = now_s + self.input_s
        return now_s < self._input_until_s

    def _queue_of(self, worker: Worker) -> OrderedDict[Worker, None]:
        light, workers = (self._light, self._workers) if worker.is_light else (self._workers, self._light)
        workers.pop(worker, None)
        return light

    def _work(self) -> None:
        self._timer.stop()
        workers = self._workers
        light = self._light
        began_s = time.perf_counter()
        now_s = began_s
        self.is_working = True
        try:
            while (workers or light) and now_s - began_s < SLICE_S:
                is_light_first = now_s - began_s < SLICE_S / 2 or not workers
                worker, _ = (light if light and is_light_first else workers).popitem(last=False)
                if worker.work() and worker not in self._slow:
                    self._queue_of(worker)[worker] = None
                now_s = time.perf_counter()
        finally:  # also after a bug in one of them: the others go on
            self.is_working = False
            if workers or light:
                self._timer.start(self._work)
            else:
                self.is_scheduled = False
                self.slice_s = _QUIET_S

    def _rest_of_slow(self, worked_s: float) -> None:
        self._slow_timer = self._loop.timer(worked_s * (1 / SLOW_PART - 1))
        self._slow_timer.start(self._work_slowly)

    def _work_slowly(self) -> None:
        slow = self._slow
        began_s = time.perf_counter()
        now_s = began_s
        try:
            while slow and now_s - began_s < _SLOW_SLICE_S:
                worker, _ = slow.popitem(last=False)
                if worker.work() and worker not in self._workers and worker not in self._light:
                    slow[worker] = None
                now_s = time.perf_counter()
        finally:
            self._slow_timer.close()  # only now: a worker that adds itself again starts no shorter rest
            self._slow_timer = None
            if slow:
                self._rest_of_slow(now_s - began_s)


class LoopIteration:
    """The work that must be done at the end of this event-loop iteration.

    Each object registers at most once an iteration; it keeps its own flag.

    The end is a prepare watcher, which the loop calls before it polls again: 1 us cheaper than a scheduled callback.
    Greenlets run at the same point of the loop, when it is too late to start the watcher; for them a callback is
    scheduled. Callbacks of `run_callback` run at that point too, but in the hub: code that registers work here must
    use a timer instead of `run_callback`.

    is_coming      True if there is work for the end of this iteration
    before_output  called before output leaves; it may close connections. None if nothing has to be checked
    backlog        work that continues in later iterations
    turns          lets greenlets work one after the other
    """

    def __init__(self, hub: Any, log: DaemonLog) -> None:
        self._hub = hub
        self._log = log
        self.is_coming = False
        self.before_output: Callable[[], None] | None = None
        self.backlog = Backlog(hub.loop)
        self.turns = Turns(hub.loop)
        self._committers: list[Committer] = []
        self._deliverers: list[Deliverer] = []
        self._flushers: list[Flusher] = []
        self._delivers_since_ns = 0
        self._postponed: list[Deliverer] = []
        self._postponed_until_ns = 0
        self._waker = hub.loop.timer(_LONGEST_POSTPONEMENT_NS / 1e9, ref=False)
        self._watcher = hub.loop.prepare(ref=False)
        poller = poll()
        poller.register(hub.loop.fileno(), POLLIN)
        self._poll_loop = poller.poll

    def add_committer(self, committer: Committer) -> None:
        self._committers.append(committer)
        if not self.is_coming:
            self._schedule_end()

    def add_deliverer(self, deliverer: Deliverer) -> None:
        self._deliverers.append(deliverer)
        if not self.is_coming:
            self._schedule_end()

    def add_deferred_deliverer(self, deliverer: Deliverer) -> None:
        """Call `deliver` when no other input is ready, at the latest after 1 ms."""
        self._postponed.append(deliverer)
        if not self.is_coming:
            self._schedule_end()

    def add_flusher(self, flusher: Flusher) -> None:
        self._flushers.append(flusher)
        if not self.is_coming:
            self._schedule_end()

    @property
    def has_one_flusher(self) -> bool:
        """True if only one connection has had output in this iteration so far."""
        return len(self._flushers) == 1

    def has_input(self) -> bool:
        """True if a socket is ready whose event the loop has not dispatched in this iteration."""
        return bool(self._poll_loop(0))

    def is_late(self) -> bool:
        """True if this iteration has delivered for 3 ms: delivery with work per message continues in the next one."""
        return monotonic_ns() - self._delivers_since_ns > _LATE_AFTER_NS

    def _schedule_end(self) -> None:
        self.is_coming = True
        if getcurrent() is self._hub:
            self._watcher.start(self.end)
        else:
            self._hub.loop.run_callback(self.end)

    def end(self) -> None:
        """Do all registered work: the log is written before the answers, and they are sent before the deliveries."""
        self._watcher.stop()
        self._work()
        if self._postponed:
            if self._is_input_first():
                self._watcher.start(self.end)
                return
            self._deliverers, self._postponed = [*self._deliverers, *self._postponed], []
            self._work()
        self.is_coming = False
        if self._deliverers or self._committers:  # a client that was flushed has room again
            self.is_coming = True
            self._hub.loop.run_callback(self.end)

    def _is_input_first(self) -> bool:
        """True if the postponed deliveries go on waiting, because other input is ready."""
        now_ns = monotonic_ns()
        if not self._postponed_until_ns:
            self._postponed_until_ns = now_ns + _LONGEST_POSTPONEMENT_NS
            self._waker.start(lambda: None)  # else the loop would sleep if something takes that input back
        if now_ns < self._postponed_until_ns and self.has_input():
            return True
        self._postponed_until_ns = 0
        self._waker.stop()
        return False

    def _work(self) -> None:
        while self._committers:
            committers, self._committers = self._committers, []
            for committer in committers:
                try:
                    committer.write()
                except Exception as error:  # noqa: BLE001 - a bug with one topic must not stop the others
                    report_bug(self._log, f"end of the iteration: {committer}", error)
            self._flush()  # the publishers prepare their next messages in the meantime: 1.1 times the PUBs of one
            for committer in committers:
                try:
                    committer.accept()
                except Exception as error:  # noqa: BLE001 - likewise
                    report_bug(self._log, f"end of the iteration: {committer}", error)
        if self._deliverers:
            self._delivers_since_ns = monotonic_ns()
        while self._deliverers:
            deliverers, self._deliverers = self._deliverers, []
            for deliverer in deliverers:
                try:
                    deliverer.deliver()
                except Exception as error:  # noqa: BLE001 - likewise
                    report_bug(self._log, f"end of the iteration: {deliverer}", error)
        self._flush()

    def _flush(self) -> None:
        if self.before_output is not None:
            self.before_output()
        while self._flushers:
            flushers, self._flushers = self._flushers, []
            for flusher in flushers:
                try:
                    flusher.flush()
                except Exception as error:  # noqa: BLE001 - likewise
                    report_bug(self._log, f"end of the iteration: {flusher}", error)
