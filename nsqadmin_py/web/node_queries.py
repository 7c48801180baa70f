"""Requests of the page that nsqds answer: clients, files of the log, missing topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import monotonic, time
from typing import Any

from werkzeug.wrappers import Request, Response

from nsqadmin_py.cluster.metrics import FAILED, state_of
from nsqadmin_py.clusterinfo import NobodyAnswered, joined
from nsqadmin_py.go_json import topic_stats
from nsqadmin_py.web.answers import NotThere, Refusal, as_json, number_of
from nsqadmin_py.web.app import Services
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.upstream import Upstream, UpstreamError, ask_all
from nsqd_py.cluster.values import Statistics, flag_in, number_in, rows_in, text_in

CANNOT = "not supported by this nsqd"
_MOST_CLIENTS = 1000
_DEFAULT_CLIENTS = 100
_PUBLISHER_TEXTS = ("client_id", "hostname", "remote_address", "user_agent")
_PUBLISHER_FLAGS = ("tls", "snappy", "deflate")


def is_missing_path(error: UpstreamError) -> bool:
    """True if the nsqd does not know the path. Other errors with status 404 have other messages."""
    return error.status == 404 and error.message == "NOT_FOUND"


def reason_of(error: UpstreamError) -> str:
    return CANNOT if is_missing_path(error) else error.message or str(error)


def ask_nodes(cluster: Cluster, topic: str, channel: str, node: str) -> list[str]:
    """Return the nsqds that have a topic or channel: all of them, or `node`. Raises Refusal."""
    having = [found.address for found, _ in cluster.parts_of(topic, channel)]
    if not having:
        raise Refusal(404, "CHANNEL_NOT_FOUND" if topic in cluster.topics else "TOPIC_NOT_FOUND")
    if node and node not in having:
        raise Refusal(404, "NODE_NOT_FOUND")
    return [node] if node else having


def failure_of(cluster: Cluster, address: str) -> str:
    """Return why an nsqd did not answer the last poll; empty if it did, or may."""
    node = cluster.nodes.get(address)
    if node is None or state_of(node, monotonic()) != FAILED:
        return ""
    return f"does not answer: {node.failure}" if node.failure else "does not answer"


def answer_of_each(cluster: Cluster, addresses: list[str], ask: Callable[[str], Statistics]) -> list[Statistics]:
    """Return the answer of each nsqd, or its error. An nsqd that did not answer the last poll is not asked."""

    def asked(address: str) -> Statistics:
        failure = failure_of(cluster, address)
        if failure:
            return {"node": address, "error": failure, "can": True}
        try:
            return {"node": address, "answer": ask(address), "can": True}
        except UpstreamError as error:
            return {"node": address, "error": reason_of(error), "can": not is_missing_path(error)}

    return list(ask_all(addresses, asked).good.values())


def ask_each(cluster: Cluster, upstream: Upstream, addresses: list[str], path: str, names: Mapping[str, str]) -> list[Statistics]:
    """Return the JSON object with which each nsqd answers a GET, or its error."""

    def ask(address: str) -> Statistics:
        answer = upstream.get(address, path, names)
        return answer if isinstance(answer, dict) else {}

    return answer_of_each(cluster, addresses, ask)


class NodeQueries:
    def __init__(self, services: Services) -> None:
        self._cluster = services.cluster
        self._access = services.access
        self._upstream = services.upstream
        self._info = services.info

    def clients(self, request: Request, topic: str, channel: str) -> Response:
        """Return a page of the clients of a channel."""
        offset = number_of(request.args, "offset", 0, 10**9)
        limit = number_of(request.args, "limit", _DEFAULT_CLIENTS, _MOST_CLIENTS)
        info = self._info()
        addresses = ask_nodes(self._cluster, topic, channel, request.args.get("node", ""))
        failures = {address: failure_of(self._cluster, address) for address in addresses}
        reported = [self._cluster.nodes[address].reported for address in addresses if not failures[address]]
        errors = [UpstreamError(failure, address) for address, failure in failures.items() if failure]
        try:
            rows, more = info.stats([node for node in reported if node], topic, channel, clients=True)
        except NobodyAnswered as error:
            raise Refusal(502, f"UPSTREAM_ERROR: {joined([*errors, *error.errors])}") from error
        errors += more
        parts = [part for row in rows for part in row["channels"] or ()]
        found = [client for part in parts for client in part["clients"] or ()]
        found.sort(key=lambda client: (client["hostname"], client["client_id"], client["remote_address"]))
        message = f"WARNING: {joined(errors)}" if errors else ""
        rows = found[offset : offset + limit]
        return as_json({"time": time(), "total": len(found), "rows": rows, "message": message})

    def log(self, request: Request, topic: str) -> Response:
        """Return what each nsqd keeps of a topic on disk."""
        addresses = ask_nodes(self._cluster, topic, "", request.args.get("node", ""))
        return as_json({"nodes": ask_each(self._cluster, self._upstream, addresses, "/topic/log", {"topic": topic})})

    def lookup(self, request: Request) -> Response:
        """Return topics that nsqlookupds know and no nsqd has, with their channels."""
        info = self._info()
        if not info.lookupds:
            return as_json({"topics": {}, "message": ""})
        try:
            names, errors = info.topics()
        except NobodyAnswered as error:
            raise Refusal(502, f"UPSTREAM_ERROR: {error}") from error
        sees = self._access.scope(request).sees
        idle = [name for name in names if name not in self._cluster.topics and sees(name)]
        message = f"WARNING: {joined(errors)}" if errors else ""
        return as_json({"topics": info.inactive_topics(idle), "message": message})

    def node_clients(self, request: Request, node: str) -> Response:
        """Return a page of the consumers of an nsqd, and of the clients that have published to it. Raises Refusal."""
        offset = number_of(request.args, "offset", 0, 10**9)
        limit = number_of(request.args, "limit", _DEFAULT_CLIENTS, _MOST_CLIENTS)
        self._check_node(node)
        failure = failure_of(self._cluster, node)
        if failure:
            raise Refusal(502, f"UPSTREAM_ERROR: {failure}")
        try:
            stats = self._upstream.get(node, "/stats", {"format": "json"})
        except UpstreamError as error:
            raise Refusal(502, f"UPSTREAM_ERROR: {reason_of(error)}") from error
        sees = self._access.scope(request).sees
        consumers = list(self._consumers(node, stats, sees))
        publishers = list(_publishers(stats, sees))
        consumers.sort(key=lambda row: (row["topic"], row["channel"], row["hostname"], row["remote_address"]))
        publishers.sort(key=lambda row: (row["hostname"], row["remote_address"]))
        return as_json(
            {
                "time": time(),
                "total": len(consumers),
                "rows": consumers[offset : offset + limit],
                "total_publishers": len(publishers),
                "publishers": publishers[offset : offset + limit],
            }
        )

    def _consumers(self, node: str, stats: Any, sees: Callable[[str], bool]) -> Iterator[Statistics]:
        reported, now_s = self._cluster.nodes[node].reported, time()
        about = {"hostname": "", **reported}
        for row in rows_in(stats, "topics"):
            topic = topic_stats(row, node, about, now_s)
            for channel in topic["channels"] or () if sees(topic["topic_name"]) else ():
                names = {"topic": topic["topic_name"], "channel": channel["channel_name"]}
                yield from ({**names, **client} for client in channel["clients"] or ())

    def _check_node(self, node: str) -> None:
        if node not in self._cluster.nodes:
            raise NotThere("NODE_NOT_FOUND")


def _publishers(stats: Any, sees: Callable[[str], bool]) -> Iterator[Statistics]:
    """Yield the clients that have published to topics that the user sees."""
    for row in rows_in(stats, "producers"):
        counts = {text_in(item, "topic"): number_in(item, "count") for item in rows_in(row, "pub_counts")}
        seen = {topic: count for topic, count in counts.items() if sees(topic)}
        if seen:
            yield _publisher(row, seen)


def _publisher(row: Mapping[str, Any], counts: Mapping[str, int]) -> Statistics:
    metrics: Statistics = {name: text_in(row, name) for name in _PUBLISHER_TEXTS}
    metrics |= {name: flag_in(row, name) for name in _PUBLISHER_FLAGS}
    metrics["connect_ts"] = number_in(row, "connect_ts")
    metrics["topics"] = [{"topic": topic, "count": count} for topic, count in sorted(counts.items())]
    return metrics | {"publish_count": sum(counts.values())}
