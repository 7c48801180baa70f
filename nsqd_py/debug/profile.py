"""A sampling profile of the running process: which functions use the processor.

The kernel sends SIGPROF after every few ms of processor time that the process used, and Python calls the handler
with the running frame. So time in which the process waits does not count, and C code counts for the function that
called it. (A thread that samples frames would need the interpreter lock, and would get it mostly from functions that
release it: every profile would show `recv` and `send`.)

A sample costs 8 us, all samples 0.2 % of a core. The kernel's tick may make samples less frequent than INTERVAL_S.
"""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from types import CodeType, FrameType

import gevent

from nsqd_py.debug.flame import Stack

INTERVAL_S = 0.005
_MOST_FRAMES = 128
_MOST_STACKS = 2000

# Code objects, innermost first. They are named at the end of the profile.
_RawStack = tuple[CodeType, ...]


class ProfileUnderWay(Exception):
    """A profile is running already; a process has only one timer of this kind."""


@dataclass(frozen=True)
class Profile:
    """The number of samples of each stack.

    wall_s, cpu_s  duration of the profile, and processor time of the process in it
    """

    stacks: dict[Stack, int]
    wall_s: float
    cpu_s: float

    @property
    def samples(self) -> int:
        return sum(self.stacks.values())


class Profiler:
    """Takes profiles of this process, in its main thread."""

    def __init__(self) -> None:
        self._counts: dict[_RawStack, int] | None = None

    def profile(self, seconds: float) -> Profile:
        """Profile for this time; blocks this greenlet only. Raises ProfileUnderWay."""
        if self._counts is not None:
            raise ProfileUnderWay
        counts = self._counts = {}
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        try:
            # The handler stays after the profile: without one, a late signal would end the process.
            signal.signal(signal.SIGPROF, self._on_signal)
            signal.siginterrupt(signal.SIGPROF, False)
            signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
            gevent.sleep(seconds)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._counts = None
        return Profile(_named(counts), time.perf_counter() - wall_s, time.process_time() - cpu_s)

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
        counts[stack] = counts.get(stack, 0) + 1


# One for the process, like the timer.
PROFILER = Profiler()


def _named(counts: dict[_RawStack, int]) -> dict[Stack, int]:
    modules = modules_by_file()
    stacks: dict[Stack, int] = {}
    for codes, samples in counts.items():
        stack = tuple(function_name(code, modules) for code in reversed(codes)) or ("(other stacks)",)
        stacks[stack] = stacks.get(stack, 0) + samples
    return stacks


def modules_by_file() -> dict[str, str]:
    """Return the names of the loaded modules, by file."""
    return {getattr(module, "__file__", None) or "": name for name, module in list(sys.modules.items())}


def function_name(code: CodeType, modules: dict[str, str]) -> str:
    """Return a name such as `nsqd_py.queue.topic.Topic.commit`."""
    return f"{modules.get(code.co_filename, code.co_filename)}.{code.co_qualname}"
