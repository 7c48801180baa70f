"""The JSON of nsqds: their metrics, their roles, and what nsqlookupds report about them. Pure."""

from __future__ import annotations

from heapq import nsmallest

from nsqadmin_py.cluster import metrics
from nsqadmin_py.cluster.last_known import NOTHING_KNOWN, LastKnown, NodeMemory
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.problems import states
from nsqd_py.cluster.problems.of_nodes import is_planned
from nsqd_py.cluster.statistics import ChannelCounts
from nsqd_py.cluster.values import Pace

# The topics that the row of an nsqd names.
_MOST_NAMED = 3


def version_of(node: Node) -> str:
    return node.version or str(node.reported.get("version") or "unknown")


def tombstones_of(node: Node) -> list[str]:
    """Return the topics that nsqlookupds hide on this nsqd."""
    return [row["topic"] for row in node.reported.get("topics") or () if row["tombstoned"]]


def _node_json(node: Node, now_s: float, known: LastKnown | None, roles: metrics.Roles) -> metrics.Json:
    state = states.state_of(node, now_s)
    return {
        "node": node.address,
        "hostname": node.reported.get("hostname", ""),
        "broadcast_address": node.reported.get("broadcast_address", ""),
        "tcp_port": node.reported.get("tcp_port", 0),
        "http_port": node.reported.get("http_port", 0),
        "version": version_of(node),
        "project_version": node.project_version,
        "draining": node.drain.left if node.drain is not None else None,
        "out_of_date": node.reported.get("out_of_date", False),
        "lookups": node.reported.get("remote_addresses") or [],
        "is_listed": node.is_listed,
        "topology_zone": node.reported.get("topology_zone", ""),
        "topology_region": node.reported.get("topology_region", ""),
        "tombstones": tombstones_of(node),
        "state": state,
        "failure": node.failure,
        "health": node.health,
        "start_time": node.start_time,
        "seen_s": known.seen_s if known is not None and state != states.OK else None,  # else the row would change in every round
        **roles.json_of(node),
        **_node_metrics(node, known),
    }


def _node_metrics(node: Node, known: LastKnown | None) -> metrics.Json:
    """Return the metrics of an nsqd: the last ones that it reported if it does not answer; null if there are none."""
    if not node.is_whole:
        last = known.metrics if known is not None else {}
        return {name: last.get(name) for name in metrics.node_metrics_json(node)} | {"topic_names": []}
    return {
        "topic_names": nsmallest(_MOST_NAMED, node.topics),
        "channel_messages": ChannelCounts._make(node.of_channels.counts).messages,
        **metrics.node_metrics_json(node),
    }


def _gone_json(known: LastKnown, now_s: float, roles: metrics.Roles) -> metrics.Json:
    """Return the row of an nsqd that is no longer part of the cluster."""
    reported = {"hostname": known.hostname}
    gone = Node(
        known.address,
        reported,
        start_time=known.start_time,
        version=known.version,
        project_version=known.project_version,
        is_listed=False,
    )
    row = _node_json(gone, now_s, known, roles)
    return row | {"state": states.STOPPED if is_planned(known) else states.GONE, "role": "standby" if known.primary else ""}


def nodes(cluster: Cluster, now_s: float, memory: NodeMemory = NOTHING_KNOWN, pace: Pace = iter) -> metrics.View:
    """Return all nsqds, also those that are gone and not dismissed yet."""
    view = metrics.View({"total": len(cluster.nodes), "failed_lookups": dict(sorted(cluster.failed_lookups.items()))})
    roles = metrics.Roles(cluster)
    found: dict[str, Node | LastKnown] = cluster.nodes | {known.address: known for known in memory.gone()}
    for address, node in pace(sorted(found.items())):
        if isinstance(node, LastKnown):
            view.rows[address] = _gone_json(node, now_s, roles)
        else:
            view.rows[address] = _node_json(node, now_s, memory.nodes.get(address), roles)
    return view


def node(cluster: Cluster, address: str, now_s: float, memory: NodeMemory = NOTHING_KNOWN) -> metrics.View:
    """Return an nsqd, and its topics by name; none of one that does not answer. Raises NotKnown."""
    found, known = cluster.nodes.get(address), memory.nodes.get(address)
    roles = metrics.Roles(cluster)
    if found is None:
        if known is None or not known.is_gone:
            raise metrics.NotKnown("NODE_NOT_FOUND")
        return metrics.View(_gone_json(known, now_s, roles) | {"latency": []})
    about = {"took_ms": round(found.took_s * 1000), "latency": metrics.latency_json(found.latency)}
    view = metrics.View(_node_json(found, now_s, known, roles) | about)
    tombstones = tombstones_of(found)
    for name in sorted(found.topics) if found.is_whole else ():
        part = found.topics[name]
        row = {"topic": name, "paused": part.is_paused, "channels": len(part.channels), "tombstoned": name in tombstones}
        view.rows[name] = row | metrics.metrics_json(part.counts, part.rates, part.channel_counts, part.channel_rates)
    return view
