"""Reports: rows as lines of Go's nsq_stat, as JSON, as CSV or as a text table. Pure.

JSON, CSV and tables have the same fields; rates are empty (null) until an nsqd has answered twice. The lines of Go's
nsq_stat are the same byte for byte. With several rows, which Go's tool cannot show, each line ends with a name.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson

from nsq_tools.stat import standbys
from nsq_tools.stat.model import Row
from nsqd_py.cluster.figures import MILLI, ChannelCounts, Rates

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
    """The reports about one channel. The first round has no line, because rates need two answers."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._before: ChannelCounts | None = None
        self._numbers = count()

    def next_report(self, counts: ChannelCounts) -> str:
        """Return a line, after the header if it is due. As in Go, rates use the interval of the settings."""
        header = HEADER if next(self._numbers) % REPORTS_PER_HEADER == 0 else ""
        before, self._before = self._before, counts
        if before is None:
            return header
        incoming = int((counts.messages - before.messages) / self._interval_s)
        outgoing = int((counts.left - before.left) / self._interval_s)
        return f"{header}{incoming:7d} {outgoing:7d} | {_rest(counts)}\n"


def named_report(rows: Iterable[Row]) -> str:
    """Return the header and a line for each row. Unknown rates are blank."""
    return NAMED_HEADER + "".join(map(_named_line, rows))


def _named_line(row: Row) -> str:
    rates = " " * 15 if row.rates is None else f"{int(row.rates.messages / MILLI):7d} {int(row.rates.left / MILLI):7d}"
    node = f" @{row.node}" if row.node else ""
    return f"{rates} | {_rest(row.counts)} | {row.name}{node}\n"


def _rest(counts: ChannelCounts) -> str:
    return (
        f"{counts.depth:7d} {counts.memory_depth:7d} {counts.backend_depth:7d} "
        f"{counts.in_flight:5d} {counts.deferred:5d} | "
        f"{counts.requeued:7d} {counts.timed_out:7d} {counts.messages:12d} {counts.clients:7d}"
    )


_RATE_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of all nsqds at about `time_s` (seconds since 1970). `failed` has pairs of address and reason.

    standbys       primaries with their standbys, and what is wrong with them
    only_standbys  True if topics and channels are left out
    """

    time_s: float
    rows: Sequence[Row]
    nodes: Sequence[str]
    failed: Sequence[tuple[str, str]] = ()
    standbys: standbys.Standbys = ()
    only_standbys: bool = False
    with_colour: bool = False


def _rate(read: Callable[[Rates], int]) -> Callable[[Row], Any]:
    return lambda row: None if row.rates is None else _per_s(read(row.rates))


def _per_s(rate: int) -> float:
    return rate / MILLI if rate % MILLI else rate // MILLI


def _count(read: Callable[[ChannelCounts], float]) -> Callable[[Row], Any]:
    return lambda row: read(row.counts)


# Each field with its value for a row. `channel` is empty for a topic, `node` for the sum over all nsqds.
FIELDS: dict[str, Callable[[Row], Any]] = {
    "topic": lambda row: row.name.topic,
    "channel": lambda row: row.name.channel,
    "node": lambda row: row.node,
    "in_per_s": _rate(lambda rates: rates.messages),
    "out_per_s": _rate(lambda rates: rates.left),
    "finished_per_s": _rate(lambda rates: rates.finished),
    "depth": _count(lambda counts: counts.depth),
    "memory_depth": _count(lambda counts: counts.memory_depth),
    "backend_depth": _count(lambda counts: counts.backend_depth),
    "in_flight": _count(lambda counts: counts.in_flight),
    "deferred": _count(lambda counts: counts.deferred),
    "requeued": _count(lambda counts: counts.requeued),
    "timed_out": _count(lambda counts: counts.timed_out),
    "messages": _count(lambda counts: counts.messages),
    "clients": _count(lambda counts: counts.clients),
    "paused": lambda row: row.is_paused,
    "oldest_age_s": lambda row: None if row.oldest_age_s is None else round(row.oldest_age_s, _RATE_DIGITS),
    "drain_s": lambda row: None if row.rates is None or row.drain_s is None else round(row.drain_s, _RATE_DIGITS),
}
_TEXTS = frozenset(("topic", "channel", "node"))


def to_json(report: Report, *, is_first: bool) -> str:
    """Return a JSON object and a line feed."""
    document: dict[str, Any] = {
        "time": round(report.time_s, _RATE_DIGITS),
        "nodes": report.nodes,
        "failed": [{"address": address, "reason": reason} for address, reason in report.failed],
        "rows": [{name: read(row) for name, read in FIELDS.items()} for row in report.rows],
    }
    if report.standbys:
        document["standbys"] = standbys.rows_of(report.standbys)
    return orjson.dumps(document).decode() + "\n"


def to_csv(report: Report, *, is_first: bool) -> str:
    """Return a line for each row, beginning with the time. The first report begins with a header."""
    time = f"{report.time_s:.{_RATE_DIGITS}f}"
    if report.only_standbys:
        return standbys.to_csv(report.standbys, time, is_first=is_first)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if is_first:
        writer.writerow(["time", *FIELDS])
    for row in report.rows:
        writer.writerow([time, *(_plain(read(row)) for read in FIELDS.values())])
    return text.getvalue()


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def to_table(report: Report, *, is_first: bool) -> str:
    """Return a header and a line for each row, in aligned columns; then the same for standbys."""
    standby_table = standbys.to_table(report.standbys, with_colour=report.with_colour) if report.standbys else ""
    gap = "" if is_first else "\n"
    if report.only_standbys:
        return gap + (standby_table or "no standbys\n")
    rows = [[_shown(read(row)) for read in FIELDS.values()] for row in report.rows]
    table = [list(FIELDS), *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(_aligned, FIELDS, line, widths)).rstrip() + "\n" for line in table]
    return gap + "".join(lines) + (f"\n{standby_table}" if standby_table else "")


def _shown(value: Any) -> str:
    return "-" if value is None or value == "" else str(_plain(value))


def _aligned(name: str, text: str, width: int) -> str:
    return text.ljust(width) if name in _TEXTS else text.rjust(width)


FORMS: dict[str, Callable[..., str]] = {"json": to_json, "csv": to_csv, "table": to_table}
