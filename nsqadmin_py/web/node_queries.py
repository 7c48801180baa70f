"""Questions of the page that nsqds answer: clients, queued messages, the log, dead letters, missing topics."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

from werkzeug.wrappers import Request, Response

from nsqadmin_py.clusterinfo import ClusterInfo, NobodyAnswered, joined
from nsqadmin_py.web.access import Access
from nsqadmin_py.web.answers import Refusal, as_json, number_of
from nsqd_py.cluster.model import Cluster
from nsqd_py.cluster.upstream import Upstream, UpstreamError, ask_all
from nsqd_py.cluster.values import Figures, number_in, rows_in, text_in

CANNOT = "not supported by this nsqd"
_MOST_CLIENTS = 1000
_DEFAULT_CLIENTS = 100
_MOST_MESSAGES = 1000
_DEFAULT_MESSAGES = 10
# The part of a body that the page shows.
_SHOWN_CHARACTERS = 64 * 1024
# base64 has groups of four characters.
_GROUP = 4
_UNSAFE = re.compile(r"\W")


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


class NodeQueries:
    def __init__(
        self, cluster: Cluster, upstream: Upstream, info: Callable[[], ClusterInfo], access: Access
    ) -> None:
        self._cluster = cluster
        self._access = access
        self._upstream = upstream
        self._info = info

    def clients(self, request: Request, topic: str, channel: str) -> Response:
        """Return a page of the clients of a channel."""
        offset = number_of(request.args, "offset", 0, 10**9)
        limit = number_of(request.args, "limit", _DEFAULT_CLIENTS, _MOST_CLIENTS)
        info = self._info()
        addresses = ask_nodes(self._cluster, topic, channel, request.args.get("node", ""))
        told = [self._cluster.nodes[address].told for address in addresses]
        try:
            rows, errors = info.stats([node for node in told if node], topic, channel, clients=True)
        except NobodyAnswered as error:
            raise Refusal(502, f"UPSTREAM_ERROR: {error}") from error
        parts = [part for row in rows for part in row["channels"] or ()]
        found = [client for part in parts for client in part["clients"] or ()]
        found.sort(key=lambda client: (client["hostname"], client["client_id"], client["remote_address"]))
        message = f"WARNING: {joined(errors)}" if errors else ""
        return as_json({"total": len(found), "rows": found[offset : offset + limit], "message": message})

    def peek(self, request: Request, topic: str, channel: str) -> Response:
        """Return queued messages of each nsqd in the order of their delivery. They stay in the queue."""
        count = number_of(request.args, "n", _DEFAULT_MESSAGES, _MOST_MESSAGES)
        addresses = ask_nodes(self._cluster, topic, channel, request.args.get("node", ""))
        names = {"topic": topic, "channel": channel, "n": str(count)}
        nodes = self._ask_each(addresses, "/channel/peek", names)
        for node in nodes:
            answer = node.get("answer")
            if answer is not None:
                answer["messages"] = [_shown(message) for message in rows_in(answer, "messages")[:count]]
        return as_json({"nodes": nodes})

    def body(self, request: Request, topic: str, channel: str, message: str) -> Response:
        """Return the whole body of a queued message as a download; `node` and `n` are those of its peek."""
        count = number_of(request.args, "n", _MOST_MESSAGES, _MOST_MESSAGES)
        node = request.args.get("node", "")
        if not node:
            raise Refusal(400, "MISSING_ARG_NODE")
        addresses = ask_nodes(self._cluster, topic, channel, node)
        names = {"topic": topic, "channel": channel, "n": str(count)}
        (found,) = self._ask_each(addresses, "/channel/peek", names)
        if "error" in found:
            raise Refusal(502, f"UPSTREAM_ERROR: {found['error']}")
        for row in rows_in(found["answer"], "messages"):
            if row.get("id") == message:
                headers = {
                    "Content-Type": "application/octet-stream",
                    "Content-Disposition": f'attachment; filename="message-{_UNSAFE.sub("", message)}"',
                    "Cache-Control": "no-store",
                }
                return Response(_body_of(row), 200, headers)
        raise Refusal(404, "MESSAGE_NOT_FOUND")

    def log(self, request: Request, topic: str) -> Response:
        """Return what each nsqd keeps of a topic on disk."""
        addresses = ask_nodes(self._cluster, topic, "", request.args.get("node", ""))
        return as_json({"nodes": self._ask_each(addresses, "/topic/log", {"topic": topic})})

    def dead_letters(self, request: Request, topic: str) -> Response:
        """Return the latest messages of a dead-letter topic, and where they came from, if the user sees that topic."""
        sees = self._access.scope(request).sees
        addresses = ask_nodes(self._cluster, topic, "", request.args.get("node", ""))
        nodes = self._ask_each(addresses, "/stats", {"format": "json", "topic": topic, "include_clients": "false"})
        for node in nodes:
            topics = rows_in(node.pop("answer", None), "topics")
            letters = [letter for row in topics for letter in rows_in(row, "dead_letters")]
            node["dead_letters"] = [letter for letter in letters if sees(text_in(letter, "topic"))]
        return as_json({"nodes": nodes})

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

    def _ask_each(self, addresses: list[str], path: str, names: Mapping[str, str]) -> list[Figures]:
        """Return the answer of each nsqd, or its error."""

        def ask(address: str) -> Figures:
            try:
                answer = self._upstream.get(address, path, names)
            except UpstreamError as error:
                return {"node": address, "error": reason_of(error), "can": not is_missing_path(error)}
            return {"node": address, "answer": answer if isinstance(answer, dict) else {}, "can": True}

        return list(ask_all(addresses, ask).good.values())


def _body_of(message: Mapping[str, Any]) -> bytes:
    body = message.get("body")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    try:
        return b64decode(str(message.get("body_base64", "")), validate=True)
    except ValueError:
        return b""


def _shown(message: Mapping[str, Any]) -> Figures:
    """Return a message with the size of its body, and at most the part of the body that the page shows."""
    shown = {**message, "size": len(_body_of(message)), "attempts": number_in(message, "attempts")}
    for key, limit in (("body", _SHOWN_CHARACTERS), ("body_base64", _SHOWN_CHARACTERS // _GROUP * _GROUP)):
        body = shown.get(key)
        if isinstance(body, str) and len(body) > limit:
            shown[key] = body[:limit]
            shown["is_cut"] = True
    return shown
