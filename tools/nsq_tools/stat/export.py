"""Reports: rows, primaries with their standbys, and stores, as lines of Go's nsq_stat, JSON, CSV or a text table. Pure.

JSON, CSV and tables have the same fields; rates are empty (null) until an nsqd has answered twice. The lines of Go's
nsq_stat are the same byte for byte. With several rows, which Go's tool cannot show, each line ends with a name.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import orjson

from nsq_tools.stat.cells import padded
from nsq_tools.stat.rows import VALUES, Row
from nsqd_py.cluster.counts import ChannelCounts
from nsqd_py.cluster.model import Node
from nsqd_py.cluster.problems.kinds import Problem
from nsqd_py.cluster.problems.of_standbys import of_standbys
from nsqd_py.cluster.problems.of_stores import of_store
from nsqd_py.cluster.roles import Pair
from nsqd_py.cluster.statistics import MILLI
from nsqd_py.cluster.stores import Store
from nsqd_py.runtime.logs.daemon_log import one_line

_GROUPS = f"{'rate':-^16}+{'depth':-^37}+{'metadata':-^37}"
_TITLES = (
    f"{'ingress':>7} {'egress':>7} | "
    f"{'total':>7} {'mem':>7} {'disk':>7} {'inflt':>5} {'def':>5} | "
    f"{'req':>7} {'t-o':>7} {'msgs':>12} {'clients':>7}"
)
HEADER = f"{_GROUPS}\n{_TITLES}\n"
NAMED_HEADER = f"{_GROUPS}+------name------\n{_TITLES} | topic/channel\n"
REPORTS_PER_HEADER = 25
_RATE_DIGITS = 3
# Columns that are aligned to the left.
_TEXTS = ("topic", "channel", "node", "primary", "standby", "store", "state", "trouble")

Fields = dict[str, Callable[[Any], Any]]
T = TypeVar("T", Pair, Store)

# Each field with its value for a row. `channel` is empty for a topic, `node` for the sum over all nsqds.
FIELDS: Fields = {
    "topic": attrgetter("name.topic"),
    "channel": attrgetter("name.channel"),
    "node": attrgetter("node"),
    "in_per_s": VALUES["in"],
    "out_per_s": lambda row: None if row.rates is None else row.rates.left / MILLI,
    "finished_per_s": VALUES["out"],
    "depth": VALUES["depth"],
    "memory_depth": attrgetter("counts.memory_depth"),
    "backend_depth": VALUES["disk"],
    "in_flight": VALUES["in-flight"],
    "deferred": VALUES["deferred"],
    "requeued": VALUES["requeued"],
    "timed_out": VALUES["timed-out"],
    "messages": VALUES["messages"],
    "clients": VALUES["clients"],
    "paused": attrgetter("is_paused"),
    "oldest_age_s": lambda row: _rounded(row.oldest_age_s),
    "drain_s": lambda row: _rounded(VALUES["drain"](row)),
}
# Each field with the attribute that has its value: of a `Standby`, and of a `Stored`.
_STANDBY = {
    "primary": "pair.primary",
    "standby": "pair.standby",
    "state": "pair.state",
    "is_complete": "pair.is_complete",
    "lag_messages": "pair.lag.messages",
    "lag_bytes": "pair.lag.size_bytes",
    "lag_s": "pair.lag.age_s",
    "as_of_s": "pair.as_of_s",
    "acks": "pair.acks",
    "is_alone": "pair.is_alone",
    "primary_answers": "pair.primary_answers",
    "epoch": "pair.epoch",
    "set_aside_messages": "pair.set_aside",
    "trouble": "trouble",
}
_STORED = {
    "node": "node",
    "store": "store.url",
    "state": "store.state",
    "lag_messages": "store.lag.messages",
    "lag_bytes": "store.lag.size_bytes",
    "lag_s": "store.lag.age_s",
    "acks": "store.acks",
    "objects": "store.objects",
    "size_bytes": "store.size_bytes",
    "requests_today": "store.requests_today",
    "epoch": "store.epoch",
    "trouble": "trouble",
}
STANDBY_FIELDS: Fields = {name: attrgetter(path) for name, path in _STANDBY.items()}
STORE_FIELDS: Fields = {name: attrgetter(path) for name, path in _STORED.items()}


# --- lines of Go's nsq_stat


def go_line(before: ChannelCounts, counts: ChannelCounts, interval_s: float) -> str:
    """Return the line about one channel. As in Go, rates use the interval of the settings."""
    incoming = int((counts.messages - before.messages) / interval_s)
    outgoing = int((counts.left - before.left) / interval_s)
    return f"{incoming:7d} {outgoing:7d} | {_rest(counts)}\n"


def named_report(rows: Iterable[Row]) -> str:
    """Return the header and a line for each row. Unknown rates are blank."""
    return NAMED_HEADER + "".join(map(_named_line, rows))


def _named_line(row: Row) -> str:
    rates = " " * 15
    if row.rates is not None:
        rates = f"{int(row.rates.messages / MILLI):7d} {int(row.rates.left / MILLI):7d}"
    node = f" @{row.node}" if row.node else ""
    return f"{rates} | {_rest(row.counts)} | {row.name}{node}\n"


def _rest(counts: ChannelCounts) -> str:
    return (
        f"{counts.depth:7d} {counts.memory_depth:7d} {counts.backend_depth:7d} "
        f"{counts.in_flight:5d} {counts.deferred:5d} | "
        f"{counts.requeued:7d} {counts.timed_out:7d} {counts.messages:12d} {counts.clients:7d}"
    )


# --- fields


def _rounded(value: float | None) -> float | None:
    if value in (None, math.inf):
        return None
    return round(value, _RATE_DIGITS)


# --- standbys and stores


class Standby(NamedTuple):
    """A primary with one of its standbys, and what is wrong with them."""

    pair: Pair
    problems: list[Problem]

    @property
    def trouble(self) -> str:
        return _joined(self.problems)


class Stored(NamedTuple):
    """An nsqd with a store, and what is wrong with the store."""

    node: str
    store: Store
    problems: list[Problem]

    @property
    def trouble(self) -> str:
        return _joined(self.problems)


def _joined(problems: list[Problem]) -> str:
    return "; ".join(problem.text for problem in problems)


def standbys_of(pairs: Sequence[Pair], lagging_after_s: float) -> list[Standby]:
    """Return each pair with its problems. Those in trouble come first."""
    found = []
    for each in of_standbys(pairs, lagging_after_s):
        text = one_line(each.text)
        found.append(each._replace(node=one_line(each.node), text=text))
    standbys = []
    for raw in pairs:
        pair = _plain_texts(raw, "primary", "standby", "state")
        own = [problem for problem in found if problem.node in (pair.primary, pair.standby)]
        standbys.append(Standby(pair, own))
    return sorted(standbys, key=lambda standby: len(standby.problems) == 0)


def stores_of(nodes: Iterable[Node]) -> list[Stored]:
    """Return the store of each nsqd that has one. Those in trouble come first."""
    found = []
    for node in nodes:
        if node.store is not None:
            address = one_line(node.address)
            store = _plain_texts(node.store, "url", "state", "error", "read_error")
            found.append(Stored(address, store, list(of_store(address, store))))
    return sorted(found, key=lambda stored: len(stored.problems) == 0)


def _plain_texts(found: T, *names: str) -> T:
    """Return a pair or store whose texts have no control characters."""
    texts: dict[str, Any] = {name: one_line(getattr(found, name)) for name in names}
    return found._replace(**texts)


# --- forms


@dataclass(frozen=True, slots=True)
class Report:
    """The rows of all nsqds at about `time_s` (seconds since 1970). `failed` has pairs of address and reason.

    standbys       primaries with their standbys, and what is wrong with them
    only_standbys  True if topics, channels and stores are left out
    stores         nsqds with a store, and what is wrong with it
    """

    time_s: float
    rows: Sequence[Row]
    nodes: Sequence[str]
    failed: Sequence[tuple[str, str]] = ()
    standbys: Sequence[Standby] = ()
    only_standbys: bool = False
    stores: Sequence[Stored] = ()


def to_json(report: Report, *, is_first: bool) -> str:
    """Return a JSON object and a line feed."""
    document: dict[str, Any] = {
        "time": round(report.time_s, _RATE_DIGITS),
        "nodes": report.nodes,
        "failed": [{"address": address, "reason": reason} for address, reason in report.failed],
        "rows": _objects(FIELDS, report.rows),
    }
    if report.standbys:
        document["standbys"] = _objects(STANDBY_FIELDS, report.standbys)
    if report.stores:
        document["stores"] = _objects(STORE_FIELDS, report.stores)
    return orjson.dumps(document).decode() + "\n"


def _objects(fields: Fields, rows: Sequence[Any]) -> list[dict[str, Any]]:
    return [{name: read(row) for name, read in fields.items()} for row in rows]


def to_csv(report: Report, *, is_first: bool) -> str:
    """Return a line for each row, beginning with the time. The first report begins with a header."""
    fields: Fields = FIELDS
    rows: Sequence[Any] = report.rows
    if report.only_standbys:
        fields = STANDBY_FIELDS
        rows = report.standbys
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if is_first:
        writer.writerow(["time", *fields])
    for row in rows:
        writer.writerow(
            [f"{report.time_s:.{_RATE_DIGITS}f}", *(_plain(read(row)) for read in fields.values())]
        )
    return text.getvalue()


def to_table(report: Report, *, is_first: bool) -> str:
    """Return a header and a line for each row, in aligned columns; then the same for standbys and stores."""
    if report.only_standbys:
        tables = []
    else:
        tables = [_aligned(FIELDS, report.rows)]
    if report.standbys:
        tables.append(_aligned(STANDBY_FIELDS, report.standbys))
    if report.stores:
        tables.append(_aligned(STORE_FIELDS, report.stores))
    text = "\n".join("".join(f"{line}\n" for line in lines) for lines in tables)
    return ("" if is_first else "\n") + (text or "no standbys\n")


def _aligned(fields: Fields, rows: Sequence[Any]) -> list[str]:
    columns = []
    for name, read in fields.items():
        cells = [name, *(_shown(read(row)) for row in rows)]
        columns.append(padded(cells, is_left=name in _TEXTS))
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return value


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return str(_plain(value))


FORMS: dict[str, Callable[..., str]] = {"json": to_json, "csv": to_csv, "table": to_table}
