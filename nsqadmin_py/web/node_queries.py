"""Requests of the page that nsqds answer: clients, files of the log, missing topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from time import monotonic, time
from typing import Any

from werkzeug.wrappers import Request

from nsqadmin_py.clusterinfo import warning
from nsqadmin_py.go_json import topic_stats
from nsqadmin_py.refusals import NotThere, number_of
from nsqadmin_py.web.answers import is_missing_path, reason_of, upstream_failed
from nsqadmin_py.web.app import Handlers
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.problems.states import FAILED, state_of
from nsqd_py.cluster.upstream import Upstream, ask_all
from nsqd_py.cluster.values import Statistics, flag_in, number_in, rows_in, text_in

_MOST_CLIENTS = 1000
_DEFAULT_CLIENTS = 100
_MOST_OFFSET = 10**9
_ORDER = ("topic", "channel", "hostname", "client_id", "remote_address")
_PUBLISHER_TEXTS = ("client_id", "hostname", "remote_address", "user_agent")
_PUBLISHER_FLAGS = ("tls", "snappy", "deflate")


def ask_nodes(cluster: Cluster, topic: str, channel: str, node: str) -> list[str]:
    """Return the nsqds that have a topic or channel: all of them, or `node`. Raises RequestRefused."""
    having = [found.address for found, _ in cluster.parts_of(topic, channel)]
    if not having:
        raise NotThere("CHANNEL_NOT_FOUND" if topic in cluster.topics else "TOPIC_NOT_FOUND")
    if not node:
        return having
    if node not in having:
        raise NotThere("NODE_NOT_FOUND")
    return [node]


def failure_of(cluster: Cluster, address: str) -> str:
    """Return why an nsqd did not answer the last poll; empty if it did, or may."""
    node = cluster.nodes.get(address)
    if node is None or state_of(node, monotonic()) != FAILED:
        return ""
    if node.failure:
        return f"does not answer: {node.failure}"
    return "does not answer"


def answer_of_each(
    cluster: Cluster, addresses: list[str], ask: Callable[[str], Statistics]
) -> list[Statistics]:
    """Return the answer of each nsqd, or its error. Do not ask one that did not answer the last poll."""

    def asked(address: str) -> Statistics:
        failure = failure_of(cluster, address)
        if failure:
            return {"node": address, "error": failure, "can": True}
        try:
            return {"node": address, "answer": ask(address), "can": True}
        except UpstreamError as error:
            return {"node": address, "error": reason_of(error), "can": not is_missing_path(error)}

    return list(ask_all(addresses, asked).good.values())


def ask_each(
    cluster: Cluster, upstream: Upstream, addresses: list[str], path: str, names: Mapping[str, str]
) -> list[Statistics]:
    """Return the JSON object with which each nsqd answers a GET, or its error."""

    def ask(address: str) -> Statistics:
        answer = upstream.get(address, path, names)
        if isinstance(answer, dict):
            return answer
        return {}

    return answer_of_each(cluster, addresses, ask)


def errors_in(nodes: list[Statistics]) -> list[str]:
    """Return the errors of answers of `answer_of_each`. Raises RequestRefused if all nsqds failed."""
    errors = [f"{node['node']}: {node['error']}" for node in nodes if "error" in node]
    if len(errors) == len(nodes):
        raise upstream_failed("; ".join(errors), nodes=nodes)
    return errors


class NodeQueries(Handlers):
    """Handlers of the paths whose answers nsqds have."""

    def clients(self, request: Request, topic: str, channel: str) -> Statistics:
        """Return a page of the clients of a channel."""
        addresses = ask_nodes(self.cluster, topic, channel, request.args.get("node", ""))
        query = {"format": "json", "topic": topic, "channel": channel}

        def ask(address: str) -> Statistics:
            stats = self.upstream.get(address, "/stats", query)
            return {"clients": self._consumers(request, address, stats)}

        nodes = answer_of_each(self.cluster, addresses, ask)
        errors = errors_in(nodes)
        answers = [node["answer"] for node in nodes if "answer" in node]
        found = [client for answer in answers for client in answer["clients"]]
        rows = _page(request, found)
        return {"time": time(), "total": len(found), "rows": rows, "message": warning(errors)}

    def log_files(self, request: Request, topic: str) -> Statistics:
        """Return what each nsqd keeps of a topic on disk."""
        addresses = ask_nodes(self.cluster, topic, "", request.args.get("node", ""))
        nodes = ask_each(self.cluster, self.upstream, addresses, "/topic/log", {"topic": topic})
        return {"nodes": nodes}

    def lookup(self, request: Request) -> Statistics:
        """Return topics that nsqlookupds know and no nsqd has, with their channels."""
        info = self.info()
        if not info.lookupds:
            return {"topics": {}, "message": ""}
        sees = self.access.scope(request).sees
        unknown = [name for name in info.topics() if name not in self.cluster.topics]
        idle = list(filter(sees, unknown))
        return {"topics": info.inactive_topics(idle), "message": info.warning}

    def node_clients(self, request: Request, node: str) -> Statistics:
        """Return a page of the consumers of an nsqd, and of the clients that have published to it."""
        if node not in self.cluster.nodes:
            raise NotThere("NODE_NOT_FOUND")
        failure = failure_of(self.cluster, node)
        if failure:
            raise upstream_failed(failure)
        stats = self.upstream.get(node, "/stats", {"format": "json"})
        consumers = self._consumers(request, node, stats)
        sees = self.access.scope(request).sees
        publishers = list(_publishers(stats, sees))
        return {
            "time": time(),
            "total": len(consumers),
            "rows": _page(request, consumers),
            "total_publishers": len(publishers),
            "publishers": _page(request, publishers),
        }

    def _consumers(self, request: Request, node: str, stats: Any) -> list[Statistics]:
        """Return the consumers in an answer of /stats, of topics that the user sees."""
        sees = self.access.scope(request).sees
        about = {"hostname": "", **self.cluster.nodes[node].reported}
        now_s = time()
        topics = [topic_stats(row, node, about, now_s) for row in rows_in(stats, "topics")]
        seen = [topic for topic in topics if sees(topic["topic_name"])]
        channels = [channel for topic in seen for channel in topic["channels"] or ()]
        return [
            {"topic": channel["topic_name"], "channel": channel["channel_name"], **client}
            for channel in channels
            for client in channel["clients"] or ()
        ]


def _page(request: Request, clients: list[Statistics]) -> list[Statistics]:
    """Return the clients that a page shows. Raises RequestRefused."""
    offset = number_of(request.args, "offset", 0, _MOST_OFFSET)
    limit = number_of(request.args, "limit", _DEFAULT_CLIENTS, _MOST_CLIENTS)
    clients.sort(key=lambda client: tuple(str(client.get(name, "")) for name in _ORDER))
    return clients[offset : offset + limit]


def _publishers(stats: Any, sees: Callable[[str], bool]) -> Iterator[Statistics]:
    """Yield the clients that have published to topics that the user sees."""
    for row in rows_in(stats, "producers"):
        items = rows_in(row, "pub_counts")
        counts = {text_in(item, "topic"): number_in(item, "count") for item in items}
        seen = {topic: count for topic, count in sorted(counts.items()) if sees(topic)}
        if seen:
            yield {
                **{name: text_in(row, name) for name in _PUBLISHER_TEXTS},
                **{name: flag_in(row, name) for name in _PUBLISHER_FLAGS},
                "connect_ts": number_in(row, "connect_ts"),
                "topics": [{"topic": topic, "count": count} for topic, count in seen.items()],
                "publish_count": sum(seen.values()),
            }
