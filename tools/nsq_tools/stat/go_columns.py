"""The lines of Go's nsq_stat, byte for byte. Pure.

Where there is more than one row, which Go's does not have, each line ends with the row's name.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from nsq_tools.stat.figures import Counts
from nsq_tools.stat.model import Row

_GROUPS = f"{'rate':-^16}+{'depth':-^37}+{'metadata':-^37}"
_TITLES = (
    f"{'ingress':>7} {'egress':>7} | "
    f"{'total':>7} {'mem':>7} {'disk':>7} {'inflt':>5} {'def':>5} | "
    f"{'req':>7} {'t-o':>7} {'msgs':>12} {'clients':>7}"
)
HEADER = f"{_GROUPS}\n{_TITLES}\n"
NAMED_HEADER = f"{_GROUPS}+------name------\n{_TITLES} | topic/channel\n"
REPORTS_PER_HEADER = 25


class GoLines:
    """The reports on one channel: the first round has no line, as there is nothing to compare with."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._before: Counts | None = None
        self._numbers = count()

    def next_report(self, counts: Counts) -> str:
        """The header where it is due, and a line; rates rest on the interval that was asked for, as Go's do."""
        header = HEADER if next(self._numbers) % REPORTS_PER_HEADER == 0 else ""
        before, self._before = self._before, counts
        if before is None:
            return header
        change = counts.minus(before)
        incoming, outgoing = int(change.messages / self._interval_s), int(change.left / self._interval_s)
        return f"{header}{incoming:7d} {outgoing:7d} | {_rest(counts)}\n"


def named_report(rows: Iterable[Row]) -> str:
    """The header, and a line a row; rates that are not known are left blank."""
    return NAMED_HEADER + "".join(map(_named_line, rows))


def _named_line(row: Row) -> str:
    rates = " " * 15 if row.per_s is None else f"{int(row.per_s.messages):7d} {int(row.per_s.left):7d}"
    node = f" @{row.node}" if row.node else ""
    return f"{rates} | {_rest(row.counts)} | {row.name}{node}\n"


def _rest(counts: Counts) -> str:
    depth, memory_depth, backend_depth, in_flight, deferred, requeued, timed_out, messages, clients = map(
        int,
        (
            counts.depth, counts.memory_depth, counts.backend_depth, counts.in_flight, counts.deferred,
            counts.requeued, counts.timed_out, counts.messages, counts.clients,
        ),
    )  # fmt: skip
    return (
        f"{depth:7d} {memory_depth:7d} {backend_depth:7d} {in_flight:5d} {deferred:5d} | "
        f"{requeued:7d} {timed_out:7d} {messages:12d} {clients:7d}"
    )
