"""Rows over all nsqd: sums of their counts, changes per second, and the history of depths. Pure.

Changes are computed for each nsqd by itself, over the time between two of its own answers, and then added. So an
nsqd that answers late, restarts or fails for a while distorts no rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nsq_tools.stat.figures import NOTHING, Counts, Name, Reading

HISTORY_LENGTH = 120
_TREND_LENGTH = 4  # rounds; one message that waits for its consumer is no growth

Changes = Mapping[Name, Counts]


@dataclass(slots=True)
class _Past:
    """What is remembered of a row from round to round."""

    depths: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    depth_changes: deque[float] = field(default_factory=lambda: deque(maxlen=_TREND_LENGTH))


@dataclass(frozen=True, slots=True)
class Row:
    """A topic or a channel, over all nsqd (`node` is empty), or on one.

    per_s: how much each count changes in a second; None before two answers of some nsqd.
    depths: in the latest rounds, the oldest first.
    """

    name: Name
    node: str
    counts: Counts
    per_s: Counts | None
    is_paused: bool
    depths: tuple[float, ...] = ()
    depth_grows: bool = False

    @property
    def has_timed_out(self) -> bool:
        """Messages ran into their time-out since the answer before."""
        return self.per_s is not None and self.per_s.timed_out > 0


class _Node:
    """The latest answer of one nsqd, and what changed since the one before."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.changes: Changes = {}
        self.has_failed = False

    def observe(self, reading: Reading) -> None:
        self.changes = _changes(self.reading, reading)
        self.reading = reading
        self.has_failed = False


class Model:
    """What is known of all nsqd; with `per_node`, rows are those of each nsqd."""

    def __init__(self, *, per_node: bool = False) -> None:
        self._per_node = per_node
        self._nodes: dict[str, _Node] = {}
        self._pasts: dict[tuple[Name, str], _Past] = {}
        self.rows: list[Row] = []

    # --- facts

    def observe(self, reading: Reading) -> None:
        """An nsqd answered."""
        if reading.node in self._nodes:
            self._nodes[reading.node].observe(reading)
        else:
            self._nodes[reading.node] = _Node(reading)

    def fail(self, node: str) -> None:
        """An nsqd did not answer: it is in no sum until it does. Its counts are kept to compare with."""
        if node in self._nodes:
            self._nodes[node].has_failed = True

    def forget(self, node: str) -> None:
        """An nsqd is there no more."""
        self._nodes.pop(node, None)

    # --- what follows

    def end_round(self) -> list[Row]:
        """Computes `rows` anew, by name, and adds their depths to the history."""
        rows = list(self._rows())
        rows.sort(key=lambda row: (row.name, row.node))
        self.rows = [self._with_past(row) for row in rows]
        self._prune()
        return self.rows

    def _rows(self) -> Iterator[Row]:
        nodes = [node for node in self._nodes.values() if not node.has_failed]
        if self._per_node:
            for node in nodes:
                yield from _sums([node], node.reading.node)
        else:
            yield from _sums(nodes, "")

    def _with_past(self, row: Row) -> Row:
        past = self._pasts.setdefault((row.name, row.node), _Past())
        past.depths.append(row.counts.depth)
        change = row.per_s.depth if row.per_s else 0
        past.depth_changes.append(change)
        grows = change >= 0 and sum(past.depth_changes) > 0 and row.counts.depth > 0
        return Row(row.name, row.node, row.counts, row.per_s, row.is_paused, tuple(past.depths), grows)

    def _prune(self) -> None:
        """Histories stay while some nsqd has the topic or channel, also one that fails at the moment."""
        if len(self._pasts) == len(self.rows):
            return
        known = {
            (name, node.reading.node if self._per_node else "")
            for node in self._nodes.values()
            for name in node.reading.counts
        }
        self._pasts = {key: past for key, past in self._pasts.items() if key in known}


def _changes(before: Reading, now: Reading) -> Changes:
    """Per second; without what cannot be compared, since the nsqd or the count began anew."""
    if before.start_time != now.start_time or now.taken_s <= before.taken_s:
        return {}
    elapsed_s = now.taken_s - before.taken_s
    changes = {}
    for name, counts in now.counts.items():
        earlier = before.counts.get(name, NOTHING)
        if counts == earlier:  # most of them, in a large cluster
            changes[name] = NOTHING
        elif counts.messages >= earlier.messages:  # less than before: it was deleted and made again
            changes[name] = counts.per_s(earlier, elapsed_s)
    return changes


def _sums(nodes: list[_Node], label: str) -> Iterator[Row]:
    counts: dict[Name, Counts] = {}
    per_s: dict[Name, Counts] = {}
    paused: set[Name] = set()
    for node in nodes:
        _add_to(counts, node.reading.counts)
        _add_to(per_s, node.changes)
        paused |= node.reading.paused
    for name, count in counts.items():
        yield Row(name, label, count, per_s.get(name), name in paused)


def _add_to(sums: dict[Name, Counts], more: Mapping[Name, Counts]) -> None:
    for name, counts in more.items():
        known = sums.get(name)
        sums[name] = counts if known is None else known.plus(counts)

