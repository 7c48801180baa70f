"""Lists of names that may have 200,000 entries, in steps of less than a millisecond.

`rest` is called after each step. In a greenlet it lets others run; see `nsqd_py.runtime.pacing`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice

import orjson

Rest = Callable[[], object]

# Sorting this many takes 0.5 ms.
STEP = 1000
SHORT = 2 * STEP


def no_rest() -> None:
    """Do nothing, for short lists."""


def sorted_names(names: Collection[str], rest: Rest = no_rest) -> list[str]:
    """Return the names in order.

    `list.sort` of 200,000 names takes 100 ms and cannot be interrupted. Here a sample divides the names into ranges
    of about STEP names, and each range is sorted by itself. Hashes choose the sample: Python's depend on a secret of
    the process, so that nobody can send names that all fall into one range.
    """
    if len(names) <= SHORT:
        return sorted(names)
    unsorted = list(names)  # at once: the collection may change during a rest
    limits: list[str] = []
    for step in _steps(unsorted):
        limits += [name for name in step if not hash(name) % STEP]
        rest()
    limits.sort()
    ranges: list[list[str]] = [[] for _ in range(len(limits) + 1)]
    for step in _steps(unsorted):
        for name in step:
            ranges[bisect_right(limits, name)].append(name)
        rest()
    found: list[str] = []
    for part in ranges:
        part.sort()
        found += part
        rest()
    return found


def _steps(names: list[str]) -> Iterator[list[str]]:
    remaining = iter(names)
    while step := list(islice(remaining, STEP)):
        yield step


def json_list(values: Sequence[object]) -> Iterator[bytes]:
    """Yield the JSON list of the values in pieces."""
    if len(values) <= STEP:
        yield orjson.dumps(values)
        return
    before = b"["
    for start in range(0, len(values), STEP):
        yield before + orjson.dumps(values[start : start + STEP])[1:-1]
        before = b","
    yield b"]"
