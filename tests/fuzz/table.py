"""The table of what is fuzzed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Run = Callable[[bytes], None]


@dataclass(frozen=True)
class Target:
    """`open` gives what runs an input, with what it needs."""

    made_from: tuple[bytes | Callable[[], bytes], ...]
    open: Callable[[], Any]

    @property
    def seeds(self) -> list[bytes]:
        """Inputs that mean something."""
        return [each if isinstance(each, bytes) else each() for each in self.made_from]


TARGETS: dict[str, Target] = {}


def target(*seeds: bytes | Callable[[], bytes]) -> Callable[[Run], Run]:
    """A function that takes the bytes is a target of its name."""

    def add(run: Run) -> Run:
        @contextmanager
        def opened() -> Iterator[Run]:
            yield run

        TARGETS[run.__name__] = Target(seeds, opened)
        return run

    return add
