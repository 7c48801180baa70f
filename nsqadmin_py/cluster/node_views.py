"""The JSON of nsqds: their metrics, their roles, and what nsqlookupds report about them. Pure."""

from __future__ import annotations

from heapq import nsmallest

from nsqadmin_py.cluster.last_known import NodeMemory
from nsqadmin_py.cluster.metrics import (
    Json,
    Roles,
    View,
    latency_json,
    metrics_json,
    node_metrics_json,
    store_json,
)
from nsqadmin_py.refusals import NotThere
from nsqd_py.cluster.counts import ChannelCounts
from nsqd_py.cluster.model import Cluster, Node
from nsqd_py.cluster.problems import states
from nsqd_py.cluster.problems.memory import LastKnown
from nsqd_py.cluster.values import Pace, fields_of

# The topics that the row of an nsqd names.
_MOST_NAMED = 3
# What nsqlookupds report about an nsqd, and what is shown if they do not.
_REPORTED: Json = {
    "hostname": "",
    "broadcast_address": "",
    "tcp_port": 0,
    "http_port": 0,
    "out_of_date": False,
    "topology_zone": "",
    "topology_region": "",
}


def version_of(node: Node) -> str:
    return node.version or str(node.reported.get("version") or "unknown")


def tombstones_of(node: Node) -> list[str]:
    """Return the topics that nsqlookupds hide on this nsqd."""
    return [row["topic"] for row in node.reported.get("topics") or () if row["tombstoned"]]


def _node_json(node: Node, now_s: float, known: LastKnown | None, roles: Roles) -> Json:
    state = states.state_of(node, now_s)
    # Of an nsqd that answers, it would change the row in every round.
    seen_s = None
    if known is not None and state != states.OK:
        seen_s = known.seen_s
    draining = None
    if node.drain is not None:
        draining = node.drain.left
    return {
        "node": node.address,
        **{name: node.reported.get(name, default) for name, default in _REPORTED.items()},
        "version": version_of(node),
        "project_version": node.project_version,
        "draining": draining,
        "lookups": node.reported.get("remote_addresses") or [],
        "is_listed": node.is_listed,
        "tombstones": tombstones_of(node),
        "state": state,
        **fields_of(node, "failure", "health", "start_time"),
        "seen_s": seen_s,
        **roles.json_of(node),
        "store": store_json(node),
        **_node_metrics(node, known),
    }


def _node_metrics(node: Node, known: LastKnown | None) -> Json:
    """Return the metrics of an nsqd; if it does not answer, the last ones, or null if there are none."""
    metrics = node_metrics_json(node)
    if not node.is_whole:
        last = known.metrics if known is not None else {}
        return {name: last.get(name) for name in metrics} | {"topic_names": []}
    return {
        "topic_names": nsmallest(_MOST_NAMED, node.topics),
        "channel_messages": ChannelCounts._make(node.totals.channels).messages,
        **metrics,
    }


def _gone_json(known: LastKnown, now_s: float, roles: Roles) -> Json:
    """Return the row of an nsqd that is no longer part of the cluster."""
    gone = Node(
        known.address,
        {"hostname": known.hostname},
        start_time=known.start_time,
        version=known.version,
        project_version=known.project_version,
        is_listed=False,
    )
    row = _node_json(gone, now_s, known, roles)
    row["state"] = known.state_of_gone
    row["role"] = "standby" if known.primary else ""
    return row


def nodes(cluster: Cluster, now_s: float, memory: NodeMemory, pace: Pace = iter) -> View:
    """Return all nsqds, also those that are gone and not dismissed yet."""
    failed = dict(sorted(cluster.failed_lookups.items()))
    view = View({"total": len(cluster.nodes), "failed_lookups": failed})
    roles = Roles(cluster)
    gone = {known.address: known for known in memory.gone()}
    found: dict[str, Node | LastKnown] = cluster.nodes | gone
    for address, node in pace(sorted(found.items())):
        if isinstance(node, LastKnown):
            view.rows[address] = _gone_json(node, now_s, roles)
        else:
            view.rows[address] = _node_json(node, now_s, memory.nodes.get(address), roles)
    return view


def node(cluster: Cluster, address: str, now_s: float, memory: NodeMemory) -> View:
    """Return an nsqd, and its topics by name; none of one that does not answer. Raises NotThere."""
    found = cluster.nodes.get(address)
    known = memory.nodes.get(address)
    roles = Roles(cluster)
    if found is None:
        if known is None or not known.is_gone:
            raise NotThere("NODE_NOT_FOUND")
        return View(_gone_json(known, now_s, roles) | {"latency": []})
    about = {"took_ms": round(found.took_s * 1000), "latency": latency_json(found.latency)}
    view = View(_node_json(found, now_s, known, roles) | about)
    if found.is_whole:
        tombstones = tombstones_of(found)
        for name, part in sorted(found.topics.items()):
            view.rows[name] = {
                "topic": name,
                "paused": part.is_paused,
                "channels": len(part.channels),
                "tombstoned": name in tombstones,
                **metrics_json(part.totals),
            }
    return view
