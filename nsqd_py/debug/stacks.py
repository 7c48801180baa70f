"""The stacks of greenlets and threads, and a sampling profile of the main thread.

The kernel sends SIGPROF after every few ms of processor time that the process used, and Python calls the handler
with the running frame. So time in which the process waits does not count, and C code counts for the function that
called it. (A thread that samples frames would need the interpreter lock, and would get it mostly from functions that
release it: every profile would show the calls of sockets.)

A sample costs 8 us, all samples 0.2 % of a core. The kernel's tick may make samples less frequent than INTERVAL_S.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections import Counter
from types import CodeType, FrameType

import gevent
from greenlet import greenlet

from nsqd_py.runtime.pacing import WorkSlices

INTERVAL_S = 0.005
_MOST_FRAMES = 128
_MOST_STACKS = 2000


# ---- stacks


def stacks_text(slices: WorkSlices) -> str:
    """Return the stacks of all greenlets and threads. Equal ones, which may be thousands, are one paragraph."""
    stacks: Counter[tuple[str, tuple[str, ...]]] = Counter()
    modules = _modules_by_file()
    for one in _living_greenlets(slices):
        frame = one.gr_frame
        if one is gevent.getcurrent():
            frame = sys._getframe()
            state = "running"
        elif frame is not None:
            state = "waiting"
        else:
            state = "not started"
        stacks[f"greenlet {state}", _lines(frame, modules)] += 1
        slices.sleep_if_due()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        stacks[f"thread {names.get(ident, ident)}", _lines(frame, modules)] += 1
    return "\n".join(
        f"{count} {heading}\n{''.join(lines)}" for (heading, lines), count in stacks.most_common()
    )


def _living_greenlets(slices: WorkSlices) -> list[greenlet]:
    """Return all greenlets that have not ended. Of those from before `gc.freeze`, only the hub and the main one."""
    hub = gevent.get_hub()
    found: dict[greenlet, None] = dict.fromkeys(filter(None, (gevent.getcurrent(), hub, hub.parent)))
    for generation in range(len(gc.get_stats())):
        # 15 ms for a million objects. The list does not contain frozen objects.
        for number, thing in enumerate(gc.get_objects(generation)):
            if issubclass(type(thing), greenlet) and not thing.dead:
                found[thing] = None
            if not number % 1000:
                slices.sleep_if_due()
    return list(found)


def _lines(frame: FrameType | None, modules: dict[str, str]) -> tuple[str, ...]:
    """Return a line for each frame, innermost first."""
    lines: list[str] = []
    while frame is not None and len(lines) < _MOST_FRAMES:
        code = frame.f_code
        lines.append(f"    {_function_name(code, modules)}  {code.co_filename}:{frame.f_lineno}\n")
        frame = frame.f_back
    return tuple(lines)


def _modules_by_file() -> dict[str, str]:
    return {getattr(module, "__file__", None) or "": name for name, module in list(sys.modules.items())}


def _function_name(code: CodeType, modules: dict[str, str]) -> str:
    """Return a name such as `nsqd_py.queue.topic.Topic.commit`."""
    return f"{modules.get(code.co_filename, code.co_filename)}.{code.co_qualname}"


# ---- profiles


class ProfileUnderWay(Exception):
    """A profile is running already; a process has only one timer of this kind."""


class Profiler:
    """Takes profiles of this process, in its main thread."""

    def __init__(self) -> None:
        # By code objects, innermost first. They are named at the end of the profile.
        self._counts: Counter[tuple[CodeType, ...]] | None = None

    def profile(self, seconds: float) -> str:
        """Profile for this time and return folded stacks, lines such as `outer;inner 12`. Blocks this greenlet only.

        Raises ProfileUnderWay.
        """
        if self._counts is not None:
            raise ProfileUnderWay
        counts: Counter[tuple[CodeType, ...]] = Counter()
        self._counts = counts
        try:
            # The handler stays after the profile: without one, a late signal would end the process.
            signal.signal(signal.SIGPROF, self._on_signal)
            signal.siginterrupt(signal.SIGPROF, False)
            signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
            gevent.sleep(seconds)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._counts = None
        modules = _modules_by_file()
        folded = (
            (";".join(_function_name(code, modules) for code in reversed(codes)), count)
            for codes, count in counts.items()
        )
        return "".join(f"{stack or '(other stacks)'} {count}\n" for stack, count in sorted(folded))

    def _on_signal(self, _number: int, frame: FrameType | None) -> None:
        counts = self._counts
        if counts is None:
            return
        codes: list[CodeType] = []
        while frame is not None and len(codes) < _MOST_FRAMES:
            codes.append(frame.f_code)
            frame = frame.f_back
        stack = tuple(codes)
        if stack not in counts and len(counts) >= _MOST_STACKS:
            stack = ()
        counts[stack] += 1


# One for the process, like the timer.
PROFILER = Profiler()
