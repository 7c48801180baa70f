"""The clients of one topic, as the nsqds report them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from nsqd_py.cluster.upstream import Upstream, ask_all
from nsqd_py.cluster.values import number_in, rows_in, text_in
from nsqd_py.runtime.logs.daemon_log import one_line

# The most clients that are shown.
MOST_CLIENTS = 1000


class Client(NamedTuple):
    """A consumer of a channel, or a publisher (`channel` is empty), on one nsqd."""

    channel: str
    name: str
    address: str
    node: str
    ready: int = 0
    in_flight: int = 0
    finished: int = 0
    requeued: int = 0
    published: int = 0
    connected_s: int = 0  # since the epoch
    program: str = ""


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of a topic: the first MOST_CLIENTS of `total`, by channel. `failed` are nsqds that gave no answer."""

    topic: str
    listed: Sequence[Client] = ()
    total: int = 0
    failed: Sequence[str] = ()


def ask_for_clients(upstream: Upstream, topic: str, nodes: Mapping[str, str]) -> Clients:
    """Ask nsqds for the clients of a topic. `nodes` has the names to show, by the addresses to ask."""
    query = {"format": "json", "topic": topic, "include_mem": "false"}
    answers = ask_all(nodes, lambda address: upstream.get(address, "/stats", query))
    found = [
        client
        for address, answer in answers.good.items()
        for client in _clients(answer, topic, nodes[address])
    ]
    found.sort(key=lambda client: (not client.channel, client.channel, client.name, client.address))
    failed = [nodes[address] for address in nodes if address not in answers.good]
    return Clients(one_line(topic), found[:MOST_CLIENTS], len(found), failed)


def _clients(answer: Any, topic: str, node: str) -> Iterator[Client]:
    for row in rows_in(answer, "topics"):
        if text_in(row, "topic_name") != topic:
            continue
        for channel in rows_in(row, "channels"):
            name = one_line(text_in(channel, "channel_name"))
            for client in rows_in(channel, "clients"):
                yield _client(client, node)._replace(channel=name)
    for client in rows_in(answer, "producers"):
        published = sum(
            number_in(row, "count") for row in rows_in(client, "pub_counts") if text_in(row, "topic") == topic
        )
        if published:
            yield _client(client, node)._replace(published=published)


def _client(row: Mapping[str, Any], node: str) -> Client:
    return Client(
        channel="",
        name=one_line(text_in(row, "client_id") or text_in(row, "hostname")),
        address=one_line(text_in(row, "remote_address")),
        node=one_line(node),
        ready=number_in(row, "ready_count"),
        in_flight=number_in(row, "in_flight_count"),
        finished=number_in(row, "finish_count"),
        requeued=number_in(row, "requeue_count"),
        connected_s=number_in(row, "connect_ts"),
        program=one_line(text_in(row, "user_agent")),
    )
