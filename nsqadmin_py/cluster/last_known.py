"""nsqadmin's memory of nsqds: until a user dismisses an nsqd that is gone, the page says what is missing. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nsqadmin_py.cluster.metrics import RATES, node_metrics_json
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.problems.memory import LastKnown, SeenNodes
from nsqd_py.cluster.values import number_in, read_as, rows_in, text_in


class NodeMemory(SeenNodes):
    """Remembers all nsqds by address. Call `note_round` after each round."""

    @staticmethod
    def metrics_of(node: Node) -> dict[str, Any]:
        """Return the metrics of an nsqd without its rates."""
        metrics = node_metrics_json(node)
        return {name: value for name, value in metrics.items() if name not in RATES}

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
            metrics = {}
            if node is not None and node.is_whole:
                metrics = self.metrics_of(node)
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
        names = self.metrics_of(Node("", {}))
        for row in rows_in({"nodes": document}, "nodes"):
            address = text_in(row, "address")
            seen_s = row.get("seen_s")
            if address and isinstance(seen_s, float | int):
                metrics = {name: number_in(row.get("metrics"), name) for name in names}
                known = read_as(LastKnown, row, seen_s=float(seen_s), is_silent=True, metrics=metrics)
                self.nodes[address] = known
