"""Rows over all nsqds: sums of counts, changes per second, the history of depths. Pure.

Changes are computed for each nsqd separately, over the time between two of its answers, and then added. So an nsqd that
answers late, restarts or fails for a while distorts no rate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from nsq_tools.stat.figures import NOTHING, Counts, Name, Reading

HISTORY_LENGTH = 120
_TREND_LENGTH = 4  # rounds; a single message that waits for its consumer does not count as growth

Changes = Mapping[Name, Counts]


@dataclass(slots=True)
class _History:
    """The history of a row."""

    depths: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))
    depth_changes: deque[float] = field(default_factory=lambda: deque(maxlen=_TREND_LENGTH))


@dataclass(frozen=True, slots=True)
class Row:
    """A topic or a channel, over all nsqds (`node` is empty) or on one.

    per_s   changes per second; None until an nsqd has answered twice
    depths  depths in the latest rounds, the oldest first
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
        """True if messages timed out since the previous answer."""
        return self.per_s is not None and self.per_s.timed_out > 0


class _Node:
    """The latest answer of one nsqd, and the changes since the previous one."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.changes: Changes = {}
        self.has_failed = False

    def observe(self, reading: Reading) -> None:
        self.changes = _changes(self.reading, reading)
        self.reading = reading
        self.has_failed = False


class Model:
    """The counts of all nsqds. With `per_node`, each nsqd has separate rows."""

    def __init__(self, *, per_node: bool = False) -> None:
        self._per_node = per_node
        self._nodes: dict[str, _Node] = {}
        self._histories: dict[tuple[Name, str], _History] = {}
        self.rows: list[Row] = []

    # --- answers

    def observe(self, reading: Reading) -> None:
        """Record the answer of an nsqd."""
        if reading.node in self._nodes:
            self._nodes[reading.node].observe(reading)
        else:
            self._nodes[reading.node] = _Node(reading)

    def fail(self, node: str) -> None:
        """Exclude an nsqd from the sums until it answers again. Its counts are kept for the next comparison."""
        if node in self._nodes:
            self._nodes[node].has_failed = True

    def forget(self, node: str) -> None:
        """Remove an nsqd."""
        self._nodes.pop(node, None)

    # --- rows

    def end_round(self) -> list[Row]:
        """Compute `rows`, sorted by name, and add their depths to the history."""
        rows = list(self._rows())
        rows.sort(key=lambda row: (row.name, row.node))
        self.rows = [self._with_history(row) for row in rows]
        self._prune()
        return self.rows

    def _rows(self) -> Iterator[Row]:
        nodes = [node for node in self._nodes.values() if not node.has_failed]
        if self._per_node:
            for node in nodes:
                yield from _sums([node], node.reading.node)
        else:
            yield from _sums(nodes, "")

    def _with_history(self, row: Row) -> Row:
        history = self._histories.setdefault((row.name, row.node), _History())
        history.depths.append(row.counts.depth)
        change = row.per_s.depth if row.per_s else 0
        history.depth_changes.append(change)
        grows = change >= 0 and sum(history.depth_changes) > 0 and row.counts.depth > 0
        return Row(row.name, row.node, row.counts, row.per_s, row.is_paused, tuple(history.depths), grows)

    def _prune(self) -> None:
        """Remove the histories of topics and channels that no nsqd has. An nsqd that currently fails still counts."""
        if len(self._histories) == len(self.rows):
            return
        known = {
            (name, node.reading.node if self._per_node else "")
            for node in self._nodes.values()
            for name in node.reading.counts
        }
        self._histories = {key: history for key, history in self._histories.items() if key in known}


def _changes(before: Reading, now: Reading) -> Changes:
    """Return the changes per second, without counts that were reset between the two readings."""
    if before.start_time != now.start_time or now.taken_s <= before.taken_s:
        return {}
    elapsed_s = now.taken_s - before.taken_s
    changes = {}
    for name, counts in now.counts.items():
        earlier = before.counts.get(name, NOTHING)
        if counts == earlier:  # most of them, in a large cluster
            changes[name] = NOTHING
        elif counts.messages >= earlier.messages:  # fewer: it was deleted and created again
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

