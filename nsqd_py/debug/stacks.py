"""Where greenlets and threads are, as text. Those at the same place are told together, as there may be thousands."""

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
_Place = tuple[tuple[CodeType, int], ...]


class _Sight(NamedTuple):
    """A greenlet or a thread, as it was found."""

    name: str
    state: str
    place: _Place


def greenlets_text(pace: Pace, *, each: bool) -> str:
    """The stacks of all greenlets; one by one, or together with a count."""
    found = []
    for one in living_greenlets(pace):
        found.append(_look_at(one))
        pace.rest_if_due()
    return _text("greenlets", found, pace, each=each)


def threads_text(pace: Pace) -> str:
    """The stacks of all threads, one by one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        _Sight(f"thread {ident} {names.get(ident, '')}".rstrip(), "running", _place(frame))
        for ident, frame in sys._current_frames().items()
    ]
    return _text("threads", found, pace, each=True)


def living_greenlets(pace: Pace) -> list[greenlet]:
    """All that have not ended; but of those that were there before the daemon served, the loop's and the main one."""
    hub = gevent.get_hub()
    found: dict[greenlet, None] = dict.fromkeys(filter(None, (gevent.getcurrent(), hub, hub.parent)))
    for generation in range(len(gc.get_stats())):
        # 15 ms for a million objects. It lists what the collector watches, hence not what it was told to forget.
        for number, thing in enumerate(gc.get_objects(generation)):
            if issubclass(type(thing), greenlet) and not thing.dead:
                found[thing] = None
            if not number % 1000:
                pace.rest_if_due()
    return list(found)


def frame_of(one: greenlet) -> FrameType | None:
    """Where a greenlet goes on, or is; None when it has not begun, or is over."""
    return sys._getframe(1) if one is gevent.getcurrent() else one.gr_frame


def _look_at(one: greenlet) -> _Sight:
    frame = frame_of(one)
    if one is gevent.getcurrent():
        state = "running"
    elif frame is not None:
        state = "waiting"
    else:
        state = "ended" if one.dead else "not started"
    return _Sight(f"{type(one).__name__} {id(one):#x}", state, _place(frame))


def _place(frame: FrameType | None) -> _Place:
    lines: list[tuple[CodeType, int]] = []
    while frame is not None and len(lines) < _MOST_FRAMES:
        lines.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(lines)


def _text(what: str, found: list[_Sight], pace: Pace, *, each: bool) -> str:
    """`what: 3`, then a paragraph for each, or for each place."""
    modules = modules_by_file()
    lines = [f"{what}: {len(found)}\n"]
    for heading, place in _one_by_one(found) if each else _by_place(found):
        lines.append(f"\n{heading}\n")
        lines += [f"    {function_name(code, modules)}  {code.co_filename}:{line}\n" for code, line in place]
        pace.rest_if_due()
    return "".join(lines)


def _one_by_one(found: Iterable[_Sight]) -> Iterator[tuple[str, _Place]]:
    return ((f"{sight.name} {sight.state}", sight.place) for sight in found)


def _by_place(found: Iterable[_Sight]) -> Iterator[tuple[str, _Place]]:
    """The places where most are first."""
    counts: dict[tuple[str, _Place], int] = {}
    for sight in found:
        key = sight.state, sight.place
        counts[key] = counts.get(key, 0) + 1
    for (state, place), count in sorted(counts.items(), key=lambda item: -item[1]):
        yield f"{count} {state}", place
