"""The stacks of greenlets and threads as text. Equal stacks are shown once with a count; there may be thousands."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import NamedTuple

import gevent
from greenlet import greenlet

from nsqd_py.debug.profile import function_name, modules_by_file
from nsqd_py.runtime.pacing import Pace

_MOST_FRAMES = 128

# (code, line), innermost first.
_Stack = tuple[tuple[CodeType, int], ...]


class _Snapshot(NamedTuple):
    """The name, state and stack of a greenlet or thread."""

    name: str
    state: str
    stack: _Stack


def greenlets_text(pace: Pace, *, each: bool) -> str:
    """Return the stacks of all greenlets: one by one, or equal ones together with a count."""
    found = []
    for one in living_greenlets(pace):
        found.append(_snapshot(one))
        pace.rest_if_due()
    return _text("greenlets", found, pace, each=each)


def threads_text(pace: Pace) -> str:
    """Return the stacks of all threads, one by one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        _Snapshot(f"thread {ident} {names.get(ident, '')}".rstrip(), "running", _stack(frame))
        for ident, frame in sys._current_frames().items()
    ]
    return _text("threads", found, pace, each=True)


def living_greenlets(pace: Pace) -> list[greenlet]:
    """Return all greenlets that have not ended. Of those from before `gc.freeze`, only the hub and the main one."""
    hub = gevent.get_hub()
    found: dict[greenlet, None] = dict.fromkeys(filter(None, (gevent.getcurrent(), hub, hub.parent)))
    for generation in range(len(gc.get_stats())):
        # 15 ms for a million objects. The list does not contain frozen objects.
        for number, thing in enumerate(gc.get_objects(generation)):
            if issubclass(type(thing), greenlet) and not thing.dead:
                found[thing] = None
            if not number % 1000:
                pace.rest_if_due()
    return list(found)


def frame_of(one: greenlet) -> FrameType | None:
    """Return the current frame of a greenlet; None if it has not started, or has ended."""
    return sys._getframe(1) if one is gevent.getcurrent() else one.gr_frame


def _snapshot(one: greenlet) -> _Snapshot:
    frame = frame_of(one)
    if one is gevent.getcurrent():
        state = "running"
    elif frame is not None:
        state = "waiting"
    else:
        state = "ended" if one.dead else "not started"
    return _Snapshot(f"{type(one).__name__} {id(one):#x}", state, _stack(frame))


def _stack(frame: FrameType | None) -> _Stack:
    lines: list[tuple[CodeType, int]] = []
    while frame is not None and len(lines) < _MOST_FRAMES:
        lines.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(lines)


def _text(what: str, found: list[_Snapshot], pace: Pace, *, each: bool) -> str:
    """Return `what: 3`, then a paragraph for each snapshot, or for each distinct stack."""
    modules = modules_by_file()
    lines = [f"{what}: {len(found)}\n"]
    for heading, stack in _one_by_one(found) if each else _by_stack(found):
        lines.append(f"\n{heading}\n")
        lines += [f"    {function_name(code, modules)}  {code.co_filename}:{line}\n" for code, line in stack]
        pace.rest_if_due()
    return "".join(lines)


def _one_by_one(found: Iterable[_Snapshot]) -> Iterator[tuple[str, _Stack]]:
    return ((f"{one.name} {one.state}", one.stack) for one in found)


def _by_stack(found: Iterable[_Snapshot]) -> Iterator[tuple[str, _Stack]]:
    """Yield each distinct stack with its count, the most frequent first."""
    counts: dict[tuple[str, _Stack], int] = {}
    for one in found:
        key = one.state, one.stack
        counts[key] = counts.get(key, 0) + 1
    for (state, stack), count in sorted(counts.items(), key=lambda item: -item[1]):
        yield f"{count} {state}", stack
