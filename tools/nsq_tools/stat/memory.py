"""The live table's memory of nsqds: those that have gone, and how often each was started. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.roles import KnownStandby

# The most nsqds that are remembered after they have gone, and the starts that are remembered of each.
_MOST_GONE = 1000
_MOST_STARTS = 20


@dataclass(slots=True)
class SeenNode:
    """An nsqd as of its last answer: a `Remembered` of nsqd_py.cluster.problems. Times are in s since the epoch."""

    address: str
    seen_s: float = 0.0
    depth: int = 0
    is_counted: bool = False
    is_gone: bool = False
    primary: str = ""
    has_left: bool = False
    was_draining: bool = False
    starts: list[int] = field(default_factory=list)

    def note(self, node: Node, seen_s: float) -> None:
        self.is_gone = False
        self.was_draining = node.drain is not None
        self.primary = node.role.primary if isinstance(node.role, KnownStandby) else ""
        if not node.is_whole:
            return
        self.seen_s = seen_s
        self.depth = node.of_topics.counts[0] + node.of_channels.counts[0]
        self.is_counted = True
        if node.start_time and node.start_time not in self.starts[-1:]:
            self.starts = [*self.starts[1 - _MOST_STARTS :], node.start_time]


class SeenNodes:
    """All nsqds that have answered, by address. Call `note_round` after each round."""

    def __init__(self) -> None:
        self.nodes: dict[str, SeenNode] = {}

    def note_round(self, cluster: Cluster, now_s: float, time_s: float) -> None:
        """Take a round. `now_s` is on the clock of the cluster, `time_s` is since the epoch."""
        for address, node in cluster.nodes.items():
            if node.answered_s is not None:
                known = self.nodes.setdefault(address, SeenNode(address))
                known.note(node, time_s - (now_s - node.answered_s))
                known.has_left = address in cluster.departed
        if not cluster.unheard_lookups:  # one of them may list what the others do not
            for address in self.nodes.keys() - cluster.nodes.keys():
                self.nodes[address].is_gone = True
        for known in self.gone():
            known.has_left |= known.address in cluster.departed
        for known in sorted(self.gone(), key=lambda one: -one.seen_s)[_MOST_GONE:]:
            del self.nodes[known.address]

    def gone(self) -> list[SeenNode]:
        """Return the nsqds that are no longer part of the cluster."""
        return [known for known in self.nodes.values() if known.is_gone]
