"""Primaries and their standbys, as text, JSON and CSV. Pure. A cluster without them has nothing of this."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any

from nsq_tools.stat.columns import short_number
from nsqd_py.cluster.roles import Pair, Trouble, troubles
from nsqd_py.runtime.logs import one_line

_MILLI = 1000
_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"

Standbys = Sequence[tuple[Pair, tuple[Trouble, ...]]]


def with_troubles(pairs: Sequence[Pair], lagging_after_s: float) -> list[tuple[Pair, tuple[Trouble, ...]]]:
    """Return each pair with its troubles; those of a primary are with its first pair. Those in trouble come first."""
    left = [Trouble(kind, one_line(node), one_line(text)) for kind, node, text in troubles(pairs, lagging_after_s)]
    found: list[tuple[Pair, tuple[Trouble, ...]]] = []
    for raw in pairs:
        pair = raw._replace(primary=one_line(raw.primary), standby=one_line(raw.standby), state=one_line(raw.state))
        own = tuple(trouble for trouble in left if trouble.node in (pair.primary, pair.standby))
        left = [trouble for trouble in left if trouble not in own]
        found.append((pair, own))
    return sorted(found, key=lambda entry: not entry[1])


def all_troubles(standbys: Standbys) -> list[str]:
    """Return a sentence for each trouble, without a full stop."""
    return [f"nsqd {trouble.node}: {trouble.text}" for _, found in standbys for trouble in found]


def summary(pair: Pair) -> list[str]:
    """Return one line about a pair, in parts of which the last ones may be left out."""
    if not pair.standby:
        return [f"primary {pair.primary}", "no standby"]
    age_s = (pair.as_of_ms or 0) / _MILLI
    lag = f"lag {_short(pair.lag.messages)} messages, {_short(pair.lag.size_bytes)} bytes, {pair.lag.ms / _MILLI:.1f} s"
    parts = [f"standby {pair.standby}", f"of {pair.primary}", pair.state, lag]
    return [*parts, *([f"as of {age_s:.0f} s ago"] if age_s else []), *(["alone"] if pair.is_alone else [])]


def _short(number: int | None) -> str:
    return "-" if number is None else short_number(number)


_Read = Callable[[Pair, tuple[Trouble, ...]], Any]
FIELDS: dict[str, _Read] = {
    "primary": lambda pair, _: pair.primary,
    "standby": lambda pair, _: pair.standby,
    "state": lambda pair, _: pair.state,
    "is_complete": lambda pair, _: pair.is_complete,
    "lag_messages": lambda pair, _: pair.lag.messages,
    "lag_bytes": lambda pair, _: pair.lag.size_bytes,
    "lag_s": lambda pair, _: pair.lag.ms / _MILLI,
    "as_of_s": lambda pair, _: None if pair.as_of_ms is None else pair.as_of_ms / _MILLI,
    "acks": lambda pair, _: pair.acks,
    "is_alone": lambda pair, _: pair.is_alone,
    "primary_answers": lambda pair, _: pair.primary_answers,
    "epoch": lambda pair, _: pair.epoch,
    "set_aside_messages": lambda pair, _: pair.set_aside,
    "trouble": lambda _, found: "; ".join(trouble.text for trouble in found),
}
_TEXTS = frozenset(("primary", "standby", "state", "trouble"))


def rows_of(standbys: Standbys) -> list[dict[str, Any]]:
    return [{name: read(pair, found) for name, read in FIELDS.items()} for pair, found in standbys]


def to_csv(standbys: Standbys, time: str, *, is_first: bool) -> str:
    """Return a line for each pair, beginning with the time. The first report begins with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if is_first:
        writer.writerow(["time", *FIELDS])
    for row in rows_of(standbys):
        writer.writerow([time, *map(_plain, row.values())])
    return text.getvalue()


def to_table(standbys: Standbys, *, with_colour: bool = False) -> str:
    """Return a header and a line for each pair, in aligned columns; those in trouble are red."""
    table = [list(FIELDS), *([_shown(value) for value in row.values()] for row in rows_of(standbys))]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(_aligned, FIELDS, line, widths)).rstrip() for line in table]
    for number, (_, found) in enumerate(standbys, start=1):
        if found and with_colour:
            lines[number] = f"{_RED}{lines[number]}{_PLAIN}"
    return "".join(f"{line}\n" for line in lines)


def _plain(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _shown(value: Any) -> str:
    return "-" if value is None or value == "" else str(_plain(value))


def _aligned(name: str, text: str, width: int) -> str:
    return text.ljust(width) if name in _TEXTS else text.rjust(width)
