"""The answers of Go's nsqadmin, from those of nsqd and nsqlookupd: the same keys, sums and zero values. Pure.

All functions accept JSON of foreign programs. A value that is missing, null or of another type counts as
zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nsqd_py.cluster.values import Statistics, flag_in, number_in, rows_in, text_in, value_in

ALL_NODES = "*"
_TOPOLOGY_COUNTS = ("zone_local_msg_count", "region_local_msg_count", "global_msg_count")
_TOPIC_COUNTS = ("depth", "backend_depth", "message_count", *_TOPOLOGY_COUNTS)
_TOPIC_SUMS = (
    "depth",
    "memory_depth",
    "backend_depth",
    "message_count",
    "delivery_msg_count",
    *_TOPOLOGY_COUNTS,
)
_CHANNEL_COUNTS = [
    "depth",
    "backend_depth",
    "in_flight_count",
    "deferred_count",
    "requeue_count",
    "timeout_count",
    "message_count",
    "client_count",
    *_TOPOLOGY_COUNTS,
]
_CHANNEL_SUMS = (*_CHANNEL_COUNTS, "memory_depth", "delivery_msg_count")
# These counts of a channel are omitted if they are 0, and _TOPOLOGY_COUNTS of a topic.
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
_TOPOLOGY = ("topology_region", "topology_zone")
_SECOND_NS = 1_000_000_000

Producer = Mapping[str, Any]


# ---- metrics of topics and channels


def topic_stats(row: Any, node: str, producer: Producer, now_s: float) -> Statistics:
    """Return a topic of one nsqd's `/stats`."""
    names: Statistics = {
        "node": node,
        "hostname": producer["hostname"],
        "topic_name": text_in(row, "topic_name"),
    }
    channels = [_channel_stats(channel, names, producer, now_s) for channel in rows_in(row, "channels")]
    return _stats(row, names, _TOPIC_COUNTS, "channels", channels)


def _channel_stats(row: Any, of_topic: Statistics, producer: Producer, now_s: float) -> Statistics:
    names = of_topic | {"channel_name": text_in(row, "channel_name")}
    clients = []
    for client in rows_in(row, "clients"):
        clients.append(_client_stats(client, names["node"], producer, now_s))
    return _stats(row, names, _CHANNEL_COUNTS, "clients", clients)


def _stats(
    row: Any, names: Statistics, counts: Iterable[str], key: str, members: list[Statistics]
) -> Statistics:
    """Return the metrics of a topic or channel; `key` is that of its channels or clients."""
    metrics = names | {name: number_in(row, name) for name in counts}
    metrics["memory_depth"] = metrics["depth"] - metrics["backend_depth"]
    metrics["delivery_msg_count"] = sum(metrics[name] for name in _TOPOLOGY_COUNTS)
    metrics["nodes"] = None
    metrics[key] = _or_null(members, row, key)
    metrics["paused"] = flag_in(row, "paused")
    metrics["e2e_processing_latency"] = latency(row)
    return metrics


def _or_null(found: list[Statistics], row: Any, key: str) -> list[Statistics] | None:
    """Return what was found in a list of a row; None if the row has no list."""
    if isinstance(value_in(row, key), list):
        return found
    return None


def _client_stats(row: Any, node: str, producer: Producer, now_s: float) -> Statistics:
    metrics: Statistics = {
        "node": node,
        **{name: text_in(row, name) for name in _CLIENT_TEXTS},
        **{name: number_in(row, name) for name in _CLIENT_NUMBERS},
        **{name: flag_in(row, name) for name in _CLIENT_FLAGS},
    }
    metrics["connected"] = (int(now_s) - metrics["connect_ts"]) * _SECOND_NS
    topology = {f"node_{name}": text_in(producer, name) for name in _TOPOLOGY}
    topology |= {name: text_in(row, name) for name in _TOPOLOGY}
    return metrics | {name: value for name, value in topology.items() if value}


def sum_of_topics(name: str, rows: Iterable[Statistics]) -> Statistics:
    """Return the sum of a topic over its nodes."""
    parts = _by_hostname(rows)
    return _sum_of(parts, {"topic_name": name}, _TOPIC_SUMS, "channels", _sums_by_channel(parts))


def _sums_by_channel(topics: Iterable[Statistics]) -> list[Statistics]:
    """Return the channels.

    A channel of one node stays as it is; others are sums with the hostname of the first.
    """
    by_name: dict[str, list[Statistics]] = {}
    for topic in topics:
        for channel in topic["channels"] or ():
            by_name.setdefault(channel["channel_name"], []).append(channel)
    found = []
    for rows in by_name.values():
        first = rows[0]
        if len(rows) > 1:
            first = sum_of_channels(rows) | {"hostname": first["hostname"]}
        found.append(first)
    return found


def sum_of_channels(rows: Iterable[Statistics]) -> Statistics:
    """Return the sum of a channel over its nodes, of which there must be at least one."""
    parts = _by_hostname(rows)
    names = {name: parts[0][name] for name in ("topic_name", "channel_name")}
    clients: list[Statistics] = []
    for part in parts:
        clients += part["clients"] or ()
    return _sum_of(parts, names, _CHANNEL_SUMS, "clients", _by_hostname(clients))


def _by_hostname(rows: Iterable[Statistics]) -> list[Statistics]:
    return sorted(rows, key=lambda row: str(row["hostname"]))


def _sum_of(
    parts: list[Statistics], names: dict[str, str], sums: Iterable[str], key: str, members: list[Statistics]
) -> Statistics:
    e2e_processing_latency = None
    if parts:
        e2e_processing_latency = merged_latency(parts, *names.values())
    return {
        "node": ALL_NODES if parts else "",
        "hostname": "",
        **names,
        **{name: sum(part[name] for part in parts) for name in sums},
        "nodes": parts or None,
        key: members or None,
        "paused": any(part["paused"] for part in parts),
        "e2e_processing_latency": e2e_processing_latency,
    }


def by_node_and_nearness(client: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a sort key for clients: by nsqd, and there first those of its zone, then those of its region."""
    region = text_in(client, "topology_region")
    zone = text_in(client, "topology_zone")
    is_near = region == text_in(client, "node_topology_region")
    is_adjacent = is_near and zone == text_in(client, "node_topology_zone")
    return client["node"], not is_adjacent, not is_near, region, zone


def without_empty_counts(metrics: Statistics, *, is_channel: bool) -> Statistics:
    """Omit some counts that are 0, in nested objects too."""
    omitted = _OMITTED_CHANNEL_ZEROS if is_channel else _TOPOLOGY_COUNTS
    shown = {}
    for key, value in metrics.items():
        if value or key not in omitted:
            shown[key] = value
    if shown.get("nodes"):
        shown["nodes"] = [without_empty_counts(node, is_channel=is_channel) for node in shown["nodes"]]
    if not is_channel and shown.get("channels"):
        shown["channels"] = [without_empty_counts(channel, is_channel=True) for channel in shown["channels"]]
    return shown


# ---- latencies


def latency(row: Any) -> Statistics | None:
    """Return `e2e_processing_latency` of one nsqd, in a form that can be merged with others."""
    given = value_in(row, "e2e_processing_latency")
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
        "percentiles": _or_null(percentiles, given, "percentiles"),
        "topic": text_in(given, "topic"),
        "channel": text_in(given, "channel"),
        "host": text_in(given, "host"),
    }


def _float(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return 0.0


def merged_latency(parts: Iterable[Statistics], topic: str, channel: str = "") -> Statistics:
    """Return averages weighted by counts, minima and maxima for each quantile that occurs."""
    merged: dict[float, Statistics] = {}
    count = 0
    for given in (part["e2e_processing_latency"] for part in parts):
        if given is not None:
            count += given["count"]
            for item in given["percentiles"] or ():
                _merge_percentile(merged, item)
    return {
        "count": count,
        "percentiles": list(merged.values()) or None,
        "topic": topic,
        "channel": channel,
        "host": ALL_NODES,
    }


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
