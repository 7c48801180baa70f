"""The last known state of each nsqd: of one that does not answer, and of one that is gone. Pure.

An nsqd that is killed disappears from the answers of nsqlookupds at once, and its messages from all sums. It
is remembered until a user dismisses it, so that the page can say what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from nsqadmin_py.cluster.metrics import RATES, node_metrics_json
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.cluster.values import Pace, flag_in, number_in, rows_in, text_in

# The most nsqds that are remembered after they are gone; the one that was seen least recently is forgotten
# first.
MOST_GONE = 1000
# The starts of an nsqd that are remembered.
_MOST_STARTS = 20


@dataclass(slots=True)
class LastKnown:
    """The last report of an nsqd. Times are in s since the epoch.

    seen_s     the time of its last answer
    is_silent  it did not answer the last request in time
    is_gone    it does not answer, and no nsqlookupd lists it
    has_left   it has ended cleanly, as an nsqlookupd says
    was_draining  it drained when it was last seen
    starts     the times at which it was started, as far as they were seen; the newest is last
    primary    TCP address of its primary if it is a standby
    metrics    its sums; empty for a user who may not view all topics
    """

    address: str
    seen_s: float
    hostname: str = ""
    version: str = ""
    start_time: int = 0
    is_silent: bool = False
    is_gone: bool = False
    primary: str = ""
    metrics: dict[str, int] = field(default_factory=dict)
    has_left: bool = False
    was_draining: bool = False
    starts: list[int] = field(default_factory=list)
    project_version: str = ""

    @property
    def depth(self) -> int:
        return self.metrics.get("depth", 0)

    @property
    def is_counted(self) -> bool:
        """True if its depth is known."""
        return bool(self.metrics)

    def note_start(self, start_time: int) -> None:
        if start_time and start_time not in self.starts[-1:]:
            self.starts = [*self.starts[1 - _MOST_STARTS :], start_time]


def _counts_of(node: Node) -> dict[str, int]:
    """Return the metrics of an nsqd without its rates."""
    metrics = node_metrics_json(node)
    return {name: value for name, value in metrics.items() if name not in RATES}


class NodeMemory:
    """Remembers all nsqds by address. Call `note_round` after each round."""

    def __init__(self) -> None:
        self.nodes: dict[str, LastKnown] = {}

    def note_round(self, cluster: Cluster, now_s: float, time_s: float, pace: Pace = iter) -> None:
        """Take what nsqds answered. `now_s` is on the clock of the cluster, `time_s` is since the epoch."""
        for address, node in pace(cluster.nodes.items()):
            if node.answered_s is None:
                continue
            seen_s = time_s - (now_s - node.answered_s)
            known = self.nodes.setdefault(address, LastKnown(address, seen_s))
            known.is_gone = False
            known.is_silent = bool(node.failure or node.is_late)
            known.has_left = address in cluster.departed
            known.was_draining = node.drain is not None
            known.primary = node.role.primary if isinstance(node.role, KnownStandby) else ""
            if node.is_whole:
                known.seen_s = seen_s
                known.start_time = node.start_time
                known.note_start(node.start_time)
                known.project_version = node.project_version
                known.hostname = str(node.reported.get("hostname", ""))
                known.version = node.version
                known.metrics = _counts_of(node)
        if not cluster.unheard_lookups:  # one of them may list what the others do not
            there = [known for known in self.nodes.values() if not known.is_gone]
            for known in there:
                known.is_gone = known.address not in cluster.nodes
                known.has_left = known.address in cluster.departed
                if known.is_gone and not known.is_silent:  # its nsqlookupd was taken out of the configuration
                    del self.nodes[known.address]
        for known in self.gone():
            known.has_left = known.has_left or known.address in cluster.departed
        for known in sorted(self.gone(), key=lambda one: -one.seen_s)[MOST_GONE:]:
            del self.nodes[known.address]

    def gone(self) -> list[LastKnown]:
        """Return the nsqds that are no longer part of the cluster."""
        return [known for known in self.nodes.values() if known.is_gone]

    def absent(self, cluster: Cluster) -> Iterator[LastKnown]:
        """Yield all nsqds whose metrics are in no sum: they are gone, or silent for long."""
        for known in self.nodes.values():
            node = cluster.nodes.get(known.address)
            if known.is_gone or (node is not None and not node.is_whole):
                yield known

    def only(self, cluster: Cluster) -> NodeMemory:
        """Return the same memory for a user who sees only the topics of `cluster`."""
        found = NodeMemory()
        for known in self.nodes.values():
            node = cluster.nodes.get(known.address)
            metrics = node_metrics_json(node) if node is not None and node.is_whole else {}
            found.nodes[known.address] = replace(known, metrics=metrics)
        return found

    def dismiss(self, address: str) -> bool:
        """Forget an nsqd that is gone. Return False if there is none at that address."""
        known = self.nodes.get(address)
        if known is None or not known.is_gone:
            return False
        del self.nodes[address]
        return True

    def standbys(self) -> list[str]:
        """Return the addresses of the standbys: no nsqlookupd lists them."""
        return [known.address for known in self.nodes.values() if known.primary]

    # ---- in the history file

    def dump(self) -> list[LastKnown]:
        """Return what is a document for `load` as JSON."""
        return list(self.nodes.values())

    def load(self, document: Any) -> None:
        """Add what `dump` returned. An nsqd that does not answer is gone from the next round on."""
        names = _counts_of(Node("", {}))
        for row in rows_in({"nodes": document}, "nodes"):
            address = text_in(row, "address")
            seen_s = row.get("seen_s")
            if address and isinstance(seen_s, float | int):
                self.nodes[address] = LastKnown(
                    address,
                    float(seen_s),
                    hostname=text_in(row, "hostname"),
                    version=text_in(row, "version"),
                    start_time=number_in(row, "start_time"),
                    is_silent=True,
                    is_gone=flag_in(row, "is_gone"),
                    primary=text_in(row, "primary"),
                    metrics={name: number_in(row.get("metrics"), name) for name in names},
                    has_left=flag_in(row, "has_left"),
                    was_draining=flag_in(row, "was_draining"),
                )
