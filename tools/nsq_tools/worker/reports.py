"""What a child reports to its parent, as one line of JSON; and sums of it. Pure.

Counts are those since the child's start, so a report that a slow parent never gets is made good by the next one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

# The upper bounds of the durations that are counted together, in seconds; the last count is that of longer ones.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# A report of 1,000 handlers has 250 kB. What is longer is no report.
MOST_LINE_BYTES = 4 << 20
_SUMMED = ("handled", "failed", "retried", "dead_letters", "timed_out", "in_flight", "connections", "total_s")


class HandlerCounts(NamedTuple):
    """What one handler of one process has done, or the sum over processes.

    handled      messages that the handler has finished
    failed       calls that raised, also those that are retried
    retried      messages that were requeued
    dead_letters messages that were given up
    timed_out    calls that took longer than their time limit
    in_flight    messages that the handler has now; `connections` to nsqds
    total_s      the time of all calls; `durations` the number of calls up to each of BOUNDS_S, and of longer ones
    """

    handler: str
    topic: str
    channel: str
    handled: int = 0
    failed: int = 0
    retried: int = 0
    dead_letters: int = 0
    timed_out: int = 0
    in_flight: int = 0
    connections: int = 0
    total_s: float = 0.0
    durations: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)

    def plus(self, other: HandlerCounts) -> HandlerCounts:
        """Return the sum of both."""
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        durations = tuple(mine + its for mine, its in zip(self.durations, other.durations, strict=True))
        return self._replace(durations=durations, **sums)

    def ended(self) -> HandlerCounts:
        """Return the counts that stay when the process has ended."""
        return self._replace(in_flight=0, connections=0)


Counts = Mapping[str, HandlerCounts]  # by the handler, its topic and its channel


class Report(NamedTuple):
    """What a child reports.

    stopped  the handlers whose consumer does not run
    hung     the handlers whose places are all taken by calls over their time limit
    refused  a sentence for each refusal by an nsqd of a handler without a connection
    failure  why the child ends for good: starting it again would not help; empty if it does not
    """

    handlers: Counts = {}
    stopped: tuple[str, ...] = ()
    failure: str = ""
    hung: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the line, with its line feed."""
        return json.dumps(self).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Report:
        """Raises ValueError."""
        try:
            handlers, stopped, failure, hung, refused = json.loads(line)
            counts = {}
            for name, values in handlers.items():
                counts[name] = HandlerCounts._make([*values[:-1], tuple(values[-1])])
        except (TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{line[:100]!r} is not the report of a child") from error
        return cls(counts, tuple(stopped), failure, tuple(hung), tuple(refused))


def add_counts(all_counts: Iterable[Counts]) -> Counts:
    """Return the sums by handler."""
    sums: dict[str, HandlerCounts] = {}
    for counts in all_counts:
        for name, more in counts.items():
            if name in sums:
                sums[name] = sums[name].plus(more)
            else:
                sums[name] = more
    return sums


class Lines:
    """Cuts what arrives into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are now complete. Raises ValueError for one that is too long."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_LINE_BYTES:
            raise ValueError(f"a line has more than {MOST_LINE_BYTES} bytes")
        return lines
