"""The answers of Go's nsqadmin, computed from those of nsqd and nsqlookupd: the same keys, sums and zero values. Pure.

All functions accept JSON of foreign programs. A value that is missing, null or of another type counts as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nsqd_py.cluster.values import Statistics, flag_in, list_in, number_in, rows_in, text_in

ALL_NODES = "*"
_TOPOLOGY_COUNTS = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
_TOPIC_SUMS = ("depth", "memory_depth", "backend_depth", "message_count", "delivery_msg_count", *_TOPOLOGY_COUNTS)
_CHANNEL_COUNTS = [
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "requeue_count",
    "timeout_count",
    "message_count",
    "client_count",
]
_CHANNEL_SUMS = (*_CHANNEL_COUNTS, "memory_depth", "delivery_msg_count", *_TOPOLOGY_COUNTS)
# These counts are omitted if they are 0.
_OMITTED_TOPIC_ZEROS = _TOPOLOGY_COUNTS
_OMITTED_CHANNEL_ZEROS = ("delivery_msg_count", *_TOPOLOGY_COUNTS)
_CLIENT_TEXTS = [
    "remote_address",
    "version",
    "client_id",
    "hostname",
    "user_agent",
    "auth_identity",
    "auth_identity_url",
    "tls_cipher_suite",
    "tls_version",
    "tls_negotiated_protocol",
]
_CLIENT_NUMBERS = [
    "connect_ts",
    "in_flight_count",
    "ready_count",
    "finish_count",
    "requeue_count",
    "message_count",
    "sample_rate",
]
_CLIENT_FLAGS = ("deflate", "snappy", "authed", "tls", "tls_negotiated_protocol_is_mutual")
_SECOND_NS = 1_000_000_000


# ---- metrics of topics and channels


def topic_stats(row: Any, node: str, producer: Mapping[str, Any], now_s: float) -> Statistics:
    """Return a topic of one nsqd's `/stats`."""
    metrics: Statistics = {"node": node, "hostname": producer["hostname"], "topic_name": text_in(row, "topic_name")}
    for key in ("depth", "backend_depth", "message_count", *_TOPOLOGY_COUNTS):
        metrics[key] = number_in(row, key)
    _add_derived(metrics)
    metrics["nodes"] = None
    channels = [_channel_stats(channel, node, producer, metrics["topic_name"], now_s) for channel in rows_in(row, "channels")]
    metrics["channels"] = channels if channels or list_in(row, "channels") else _as_given(row, "channels")
    metrics["paused"] = flag_in(row, "paused")
    metrics["e2e_processing_latency"] = latency(row)
    return metrics


def _as_given(row: Any, key: str) -> list[Any] | None:
    """Return an empty list for an empty list, and None for null."""
    return [] if isinstance(row, Mapping) and row.get(key) == [] else None


def _channel_stats(row: Any, node: str, producer: Mapping[str, Any], topic: str, now_s: float) -> Statistics:
    metrics: Statistics = {
        "node": node,
        "hostname": producer["hostname"],
        "topic_name": topic,
        "channel_name": text_in(row, "channel_name"),
    }
    for key in (*_CHANNEL_COUNTS, *_TOPOLOGY_COUNTS):
        metrics[key] = number_in(row, key)
    _add_derived(metrics)
    metrics["nodes"] = None
    clients = [_client_stats(client, node, producer, now_s) for client in rows_in(row, "clients")]
    metrics["clients"] = clients if clients else _as_given(row, "clients")
    metrics["paused"] = flag_in(row, "paused")
    metrics["e2e_processing_latency"] = latency(row)
    return metrics


def _add_derived(metrics: Statistics) -> None:
    metrics["memory_depth"] = metrics["depth"] - metrics["backend_depth"]
    metrics["delivery_msg_count"] = sum(metrics[key] for key in _TOPOLOGY_COUNTS)


def _client_stats(row: Any, node: str, producer: Mapping[str, Any], now_s: float) -> Statistics:
    metrics: Statistics = {"node": node}
    metrics.update((key, text_in(row, key)) for key in _CLIENT_TEXTS)
    metrics.update((key, number_in(row, key)) for key in _CLIENT_NUMBERS)
    metrics.update((key, flag_in(row, key)) for key in _CLIENT_FLAGS)
    metrics["connected"] = (int(now_s) - metrics["connect_ts"]) * _SECOND_NS
    topology = {
        "node_topology_region": text_in(producer, "topology_region"),
        "node_topology_zone": text_in(producer, "topology_zone"),
        "topology_region": text_in(row, "topology_region"),
        "topology_zone": text_in(row, "topology_zone"),
    }
    metrics.update((key, value) for key, value in topology.items() if value)
    return metrics


def sum_of_topics(name: str, rows: Iterable[Statistics]) -> Statistics:
    """Return the sum of a topic over its nodes."""
    parts = sorted(rows, key=lambda row: str(row["hostname"]))
    total: Statistics = {"node": ALL_NODES if parts else "", "hostname": "", "topic_name": name}
    total |= {key: sum(part[key] for part in parts) for key in _TOPIC_SUMS}
    total["nodes"] = parts or None
    total["channels"] = _sums_by_channel(parts) or None
    total["paused"] = any(part["paused"] for part in parts)
    total["e2e_processing_latency"] = merged_latency(parts, name) if parts else None
    return total


def _sums_by_channel(topics: Iterable[Statistics]) -> list[Statistics]:
    """Return the channels. A channel of one node stays as it is; others are sums with the hostname of the first."""
    by_name: dict[str, list[Statistics]] = {}
    for topic in topics:
        for channel in topic["channels"] or ():
            by_name.setdefault(channel["channel_name"], []).append(channel)
    return [rows[0] if len(rows) == 1 else sum_of_channels(rows) | {"hostname": rows[0]["hostname"]} for rows in by_name.values()]


def sum_of_channels(rows: Iterable[Statistics]) -> Statistics:
    """Return the sum of a channel over its nodes, of which there must be at least one."""
    parts = sorted(rows, key=lambda row: str(row["hostname"]))
    topic, channel = parts[0]["topic_name"], parts[0]["channel_name"]
    total: Statistics = {"node": ALL_NODES, "hostname": "", "topic_name": topic, "channel_name": channel}
    total |= {key: sum(part[key] for part in parts) for key in _CHANNEL_SUMS}
    total["nodes"] = parts
    clients = [client for part in parts for client in part["clients"] or ()]
    total["clients"] = sorted(clients, key=lambda client: str(client["hostname"])) or None
    total["paused"] = any(part["paused"] for part in parts)
    total["e2e_processing_latency"] = merged_latency(parts, topic, channel)
    return total


def by_node_and_nearness(client: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a sort key for clients: by nsqd, and there first those of its zone, then those of its region."""
    region, zone = text_in(client, "topology_region"), text_in(client, "topology_zone")
    same_region = region == text_in(client, "node_topology_region")
    same_zone = same_region and zone == text_in(client, "node_topology_zone")
    return client["node"], 0 if same_zone else 1 if same_region else 2, region, zone


def without_empty_counts(metrics: Statistics, *, is_channel: bool) -> Statistics:
    """Omit some counts that are 0, in nested objects too."""
    omitted = _OMITTED_CHANNEL_ZEROS if is_channel else _OMITTED_TOPIC_ZEROS
    shown = {key: value for key, value in metrics.items() if value or key not in omitted}
    if shown.get("nodes"):
        shown["nodes"] = [without_empty_counts(node, is_channel=is_channel) for node in shown["nodes"]]
    if not is_channel and shown.get("channels"):
        shown["channels"] = [without_empty_counts(channel, is_channel=True) for channel in shown["channels"]]
    return shown


# ---- latencies


def latency(row: Any) -> Statistics | None:
    """Return `e2e_processing_latency` of one nsqd, in a form that can be merged with others."""
    given = row.get("e2e_processing_latency") if isinstance(row, Mapping) else None
    if not isinstance(given, Mapping):
        return None
    count = number_in(given, "count")
    percentiles = []
    for item in rows_in(given, "percentiles"):
        value = _float(item.get("value"))
        percentile = {key: _float(number) for key, number in item.items()}
        percentiles.append(percentile | {"min": value, "max": value, "average": value, "count": count})
    return {
        "count": count,
        "percentiles": percentiles if percentiles else _as_given(given, "percentiles"),
        "topic": text_in(given, "topic"),
        "channel": text_in(given, "channel"),
        "host": text_in(given, "host"),
    }


def _float(value: Any) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def merged_latency(parts: Iterable[Statistics], topic: str, channel: str = "") -> Statistics:
    """Return averages weighted by counts, minima and maxima for each quantile that occurs."""
    merged: dict[float, Statistics] = {}
    count = 0
    for given in (part["e2e_processing_latency"] for part in parts):
        if given is not None:
            count += given["count"]
            for item in given["percentiles"] or ():
                _merge_percentile(merged, item)
    return {"count": count, "percentiles": list(merged.values()) or None, "topic": topic, "channel": channel, "host": ALL_NODES}


def _merge_percentile(merged: dict[float, Statistics], item: Mapping[str, float]) -> None:
    quantile = item.get("quantile", 0.0)
    known = merged.get(quantile)
    if known is None:
        first = {"quantile": quantile, "max": item["max"], "min": item["min"], "count": item["count"]}
        merged[quantile] = first | {"average": item["average"] if item["count"] else 0}
        return
    known["max"] = max(known["max"], item["max"])
    known["min"] = min(known["min"], item["min"])
    known["count"] += item["count"]
    if known["count"]:
        known["average"] += (item["average"] - known["average"]) * item["count"] / known["count"]
