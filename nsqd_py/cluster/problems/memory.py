"""The last known state of each nsqd: of one that does not answer, and of one that is gone. Pure.

An nsqd that is killed disappears from the answers of nsqlookupds at once, and its messages from all sums. It is remembered,
so that an observer can say what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.problems.states import GONE, STOPPED
from nsqd_py.cluster.roles import KnownStandby
from nsqd_py.cluster.values import Pace

# The most nsqds that are remembered after they are gone; the one that was seen least recently is forgotten first.
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
    metrics: dict[str, Any] = field(default_factory=dict)
    has_left: bool = False
    was_draining: bool = False
    starts: list[int] = field(default_factory=list)
    project_version: str = ""

    @property
    def depth(self) -> int:
        return int(self.metrics.get("depth", 0))

    @property
    def is_planned(self) -> bool:
        """True if an nsqd that does not answer any more was stopped or drained on purpose."""
        return self.has_left or self.was_draining

    @property
    def state_of_gone(self) -> str:
        return STOPPED if self.is_planned else GONE

    def note(self, node: Node, seen_s: float) -> None:
        """Take what an nsqd answered."""
        self.is_gone = False
        self.is_silent = bool(node.failure or node.is_late)
        self.was_draining = node.drain is not None
        if isinstance(node.role, KnownStandby):
            self.primary = node.role.primary
        else:
            self.primary = ""
        if not node.is_whole:
            return
        self.seen_s = seen_s
        self.start_time = node.start_time
        if node.start_time and node.start_time not in self.starts[-1:]:
            self.starts = [*self.starts[1 - _MOST_STARTS :], node.start_time]
        self.project_version = node.project_version
        self.hostname = str(node.reported.get("hostname", ""))
        self.version = node.version


class SeenNodes:
    """Remembers all nsqds that have answered, by address. Call `note_round` after each round."""

    def __init__(self) -> None:
        self.nodes: dict[str, LastKnown] = {}

    @staticmethod
    def metrics_of(node: Node) -> dict[str, Any]:
        """Return the metrics of an nsqd that are remembered."""
        return {"depth": node.depth}

    def note_round(self, cluster: Cluster, now_s: float, time_s: float, pace: Pace = iter) -> None:
        """Take what nsqds answered. `now_s` is on the clock of the cluster, `time_s` is since the epoch."""
        for address, node in pace(cluster.nodes.items()):
            if node.answered_s is None:
                continue
            seen_s = time_s - (now_s - node.answered_s)
            known = self.nodes.setdefault(address, LastKnown(address, seen_s))
            known.note(node, seen_s)
            known.has_left = address in cluster.departed
            if node.is_whole:
                known.metrics = self.metrics_of(node)
        if not cluster.unheard_lookups:  # one of them may list what the others do not
            self._note_absence(cluster)
        for known in self.gone():
            known.has_left |= known.address in cluster.departed
        for known in sorted(self.gone(), key=lambda one: -one.seen_s)[MOST_GONE:]:
            del self.nodes[known.address]

    def _note_absence(self, cluster: Cluster) -> None:
        there = [known for known in self.nodes.values() if not known.is_gone]
        for known in there:
            known.is_gone = known.address not in cluster.nodes
            known.has_left = known.address in cluster.departed
            if known.is_gone and not known.is_silent:  # its nsqlookupd was taken out of the configuration
                del self.nodes[known.address]

    def gone(self) -> list[LastKnown]:
        """Return the nsqds that are no longer part of the cluster."""
        return [known for known in self.nodes.values() if known.is_gone]
