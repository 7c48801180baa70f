"""The table of what is fuzzed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Run = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """`seeds` are inputs that mean something; `open` gives what runs one, with what it needs."""

    seeds: list[bytes]
    open: Callable[[], Any]


TARGETS: dict[str, Target] = {}


def target(*seeds: bytes) -> Callable[[Run], Run]:
    """A function that takes the bytes is a target of its name."""

    def add(run: Run) -> Run:
        @contextmanager
        def opened() -> Iterator[Run]:
            yield run

        TARGETS[run.__name__] = Target(list(seeds), opened)
        return run

    return add
