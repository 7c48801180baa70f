"""Which functions use the processor: a sampling profile of the process while it works.

The kernel sends SIGPROF after every few ms of processor time that the process used, and Python then calls the
handler with the frame that is running. So nothing is counted while the process waits, and C code counts for the
function that called it. (A thread that looks at the frames would need the interpreter lock, and would get it mostly
from functions that give it away: every profile would say `recv` and `send`.)

A sample costs 8 us, all of them together 0.2 % of a core. The kernel's tick may make them rarer than asked for.
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

# Code objects, innermost first: to name them can wait.
_RawStack = tuple[CodeType, ...]


class ProfileUnderWay(Exception):
    """There is one timer of this kind in a process, so one profile at a time."""


@dataclass(frozen=True)
class Profile:
    """How often each stack was running.

    wall_s, cpu_s  how long it was watched, and how much processor time the process used meanwhile
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
        """Watch for so long; blocks this greenlet only. Raises ProfileUnderWay."""
        if self._counts is not None:
            raise ProfileUnderWay
        counts = self._counts = {}
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        try:
            # Its handler stays: a signal that is still under way at the end must find one, or the process dies of it.
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


# The timer belongs to the process, and so does this.
PROFILER = Profiler()


def _named(counts: dict[_RawStack, int]) -> dict[Stack, int]:
    modules = modules_by_file()
    stacks: dict[Stack, int] = {}
    for codes, samples in counts.items():
        stack = tuple(function_name(code, modules) for code in reversed(codes)) or ("(other stacks)",)
        stacks[stack] = stacks.get(stack, 0) + samples
    return stacks


def modules_by_file() -> dict[str, str]:
    """The names of the modules that are loaded, by the file that each came from."""
    return {getattr(module, "__file__", None) or "": name for name, module in list(sys.modules.items())}


def function_name(code: CodeType, modules: dict[str, str]) -> str:
    """`nsqd_py.queue.topic.Topic.commit`."""
    return f"{modules.get(code.co_filename, code.co_filename)}.{code.co_qualname}"
