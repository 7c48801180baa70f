"""Starts the children, starts those again that end, reloads them, and stops them.

One thread does all this. `board` is what threads of HTTP read.
"""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic

from nsq_tools.worker.children import STOPS, Child, ChildSettings, end_of
from nsq_tools.worker.pauses import RestartPause
from nsq_tools.worker.reports import Counts, Report, add_counts
from nsq_tools.worker.verdict import Board, ProcessState
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.program import DONE, FAILED

# The time that a child has to close its connections, after that of its handlers; then it is killed.
_CLOSE_S = 6.0
# The time that a child has after a second signal.
_AT_ONCE_S = 2.0
# A child whose handler hangs for this time is replaced: a call that is a little late costs no process.
_HUNG_S = 5.0
# The board is made again at least this often.
_TURN_S = 1.0


class _Slot:
    """One of the processes: its child, or when the next one starts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: Child | None = None
        self.start_at_s = 0.0  # inf: not before a file changes
        self.why = "it is not started yet"
        self.pause = RestartPause()
        self.is_reloading = False


class Supervisor:
    """The children of one nsq-worker.

    board  the state of the children, for those that ask
    """

    def __init__(
        self, app: str, processes: int, settings: ChildSettings, log: Log, *, reloads: bool = False
    ) -> None:
        self.board = Board()
        self._app = app
        self._settings = settings
        self._log = log
        self._reloads = reloads
        self._slots = [_Slot(number) for number in range(1, processes + 1)]
        self._selector = selectors.DefaultSelector()
        self._alarm, self._wake = socket.socketpair()
        self._signals = 0
        self._signals_taken = 0
        self._is_cut = False
        self._changes: SimpleQueue[str] = SimpleQueue()
        self._is_stopping = False
        self._has_run = False
        self._failure = ""
        self._past: Counts = {}
        self._restarts = 0

    # ---- what others call

    def file_changed(self, path: str) -> None:
        """Restart all children, because this file has changed. Any thread may call it."""
        self._changes.put(path)
        with suppress(BlockingIOError):  # it wakes up anyway
            self._wake.send(b"c")

    def run(self) -> int:
        """Supervise until a signal, or until a child has ended for good. Return the exit status."""
        with self._handlers():
            while not self._is_over():
                now_s = monotonic()
                self._start_due(now_s)
                self._show_board()
                self._receive(max(0.0, min(self._next_s() - now_s, _TURN_S)))
                now_s = monotonic()
                self._take_signals()
                self._take_changes(now_s)
                self._replace_hung(now_s)
                self._end_late(now_s)
                self._reap(now_s)
        self._show_board()
        if self._failure or self._is_cut:
            return FAILED
        return DONE

    # ---- a turn

    def _is_over(self) -> bool:
        if not self._is_stopping:
            return False
        return not any(slot.child for slot in self._slots)

    def _next_s(self) -> float:
        """Return when something is due."""
        starts = [slot.start_at_s for slot in self._slots if slot.child is None and not self._is_stopping]
        ends = [child.ending_by_s for child in self._children() if child.ending_by_s is not None]
        return min([*starts, *ends], default=inf)

    def _children(self) -> list[Child]:
        return [slot.child for slot in self._slots if slot.child is not None]

    def _start_due(self, now_s: float) -> None:
        for slot in self._slots:
            if slot.child is None and slot.start_at_s <= now_s and not self._is_stopping:
                self._start(slot, now_s)

    def _start(self, slot: _Slot, now_s: float) -> None:
        try:
            slot.child = Child(self._app, slot.number, self._settings, now_s)
        except OSError as error:  # no more processes, no more descriptors
            self._put_off(slot, 0.0, now_s, f"could not be started: {error.strerror}")
            return
        slot.is_reloading = False
        self._selector.register(slot.child.socket, selectors.EVENT_READ, slot.child)

    def _receive(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._alarm.recv(4096)
                continue
            child: Child = key.data
            if not child.read(monotonic()):
                self._selector.unregister(child.socket)
        for child in self._children():
            self._has_run = self._has_run or child.has_run
            if child.report.failure and not self._is_stopping and child.ending_by_s is None:
                self._failed_for_good(child)

    def _take_changes(self, now_s: float) -> None:
        changed = ""
        with suppress(Empty):
            while True:
                changed = self._changes.get_nowait()
        if changed and not self._is_stopping:
            self._log.info("%s has changed: restarting", changed)
            for slot in self._slots:
                slot.start_at_s = now_s
                slot.is_reloading = True
            self._ask_all(self._settings.stop_timeout_s, now_s + self._settings.stop_timeout_s + _CLOSE_S)

    def _replace_hung(self, now_s: float) -> None:
        """Let children end in which a handler can do nothing any more: threads that hang cannot be ended."""
        for child in self._children():
            if child.hung_s is None or now_s - child.hung_s < _HUNG_S or child.ending_by_s is not None:
                continue
            self._log.warning(
                "process %d (pid %d) is replaced: calls over their time limit take all places of %s",
                child.number,
                child.pid,
                ", ".join(child.report.hung),
            )
            child.ask_to_end(self._settings.stop_timeout_s, now_s + self._settings.stop_timeout_s + _CLOSE_S)

    def _end_late(self, now_s: float) -> None:
        for child in self._children():
            if child.ending_by_s is not None and child.ending_by_s <= now_s and child.poll() is None:
                self._log.warning(
                    "process %d (pid %d) has not ended in time: it is killed, and its messages come again",
                    child.number,
                    child.pid,
                )
                child.kill()
                self._is_cut = self._is_cut or self._is_stopping
                child.ending_by_s = inf

    # ---- ends

    def _reap(self, now_s: float) -> None:
        for slot in self._slots:
            child = slot.child
            status = child.poll() if child is not None else None
            if child is None or status is None:
                continue
            with suppress(KeyError):
                self._selector.unregister(child.socket)
            child.close(now_s)
            slot.child = None
            self._past = add_counts([self._past, {k: v.ended() for k, v in child.report.handlers.items()}])
            self._has_ended(slot, child, status, now_s)

    def _has_ended(self, slot: _Slot, child: Child, status: int, now_s: float) -> None:
        """Decide when the next child of this slot starts."""
        if self._is_stopping or slot.is_reloading:
            slot.why = "it is restarting"
            return
        if child.report.failure:
            if child.ending_by_s is None:
                self._failed_for_good(child)
            slot.why = child.report.failure
            slot.start_at_s = inf
            return
        self._restarts += 1
        ran_s = now_s - child.started_s
        self._put_off(slot, ran_s, now_s, f"(pid {child.pid}) {end_of(status)} after {ran_s:.1f} s")

    def _put_off(self, slot: _Slot, ran_s: float, now_s: float, why: str) -> None:
        pause_s = slot.pause.after(ran_s)
        slot.why = why
        slot.start_at_s = now_s + pause_s
        self._log.warning("process %d %s: it starts again in %g s", slot.number, why, pause_s)

    def _failed_for_good(self, child: Child) -> None:
        """Stop everything because of this child; or wait for a change of a file, if the app has run before."""
        if self._reloads and self._has_run:
            self._log.error("%s; waiting for a change of a file", child.report.failure)
            child.ending_by_s = monotonic() + self._settings.stop_timeout_s + _CLOSE_S
            return
        if not self._failure:
            self._failure = child.report.failure
            self._log.fatal("%s", self._failure)
        self._begin_to_stop(self._settings.stop_timeout_s, _CLOSE_S)

    def _begin_to_stop(self, timeout_s: float, close_s: float) -> None:
        self._is_stopping = True
        self._ask_all(timeout_s, monotonic() + timeout_s + close_s)

    def _ask_all(self, timeout_s: float, kill_at_s: float) -> None:
        for child in self._children():
            child.ask_to_end(timeout_s, kill_at_s)

    # ---- signals

    @contextmanager
    def _handlers(self) -> Iterator[None]:
        """Count signals to stop, and wake up for them and when a child ends. They stay so: the process ends."""
        self._alarm.setblocking(False)
        self._wake.setblocking(False)
        self._selector.register(self._alarm, selectors.EVENT_READ, None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in STOPS:
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            signal.set_wakeup_fd(-1)

    def _on_signal(self, *_: object) -> None:
        self._signals += 1

    def _take_signals(self) -> None:
        """Begin to stop at the first signal, and end at the next, or at one while everything stops already."""
        for _ in range(self._signals_taken, self._signals):
            self._signals_taken += 1
            if self._is_stopping:
                self._is_cut = True
                self._begin_to_stop(0.0, _AT_ONCE_S)
                continue
            timeout_s = self._settings.stop_timeout_s
            self._log.info(
                "stopping: what runs has %g s to finish; a second signal returns it to nsqd", timeout_s
            )
            self._begin_to_stop(timeout_s, _CLOSE_S)

    # ---- what others read

    def _show_board(self) -> None:
        """Replace the board."""
        processes = tuple(self._state_of(slot) for slot in self._slots)
        running = [child.report.handlers for child in self._children()]
        self.board = Board(processes, add_counts([self._past, *running]), self._restarts, self._is_stopping)

    def _state_of(self, slot: _Slot) -> ProcessState:
        child = slot.child
        if child is None:
            return ProcessState(slot.number, 0, slot.why, None, Report())
        return ProcessState(slot.number, child.pid, "", child.reported_s, child.report)
