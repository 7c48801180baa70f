"""The clients of a topic, made of what nsqds answer."""

from __future__ import annotations

from typing import Any, cast

import pytest

from nsq_tools.stat.clients import MOST_CLIENTS, Client, Clients, ask_for_clients
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.upstream import Upstream


class Answering:
    """An Upstream whose answers a test makes."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers

    def get(self, address: str, path: str, query: dict[str, str]) -> Any:
        assert (path, query) == ("/stats", {"format": "json", "topic": "orders", "include_mem": "false"})
        if address not in self._answers:
            raise UpstreamError("refused")
        return self._answers[address]


def asked(**answers: Any) -> Clients:
    nodes = {address: f"node-{address}" for address in (*answers, "down")}
    return ask_for_clients(cast("Upstream", Answering(answers)), "orders", nodes)


def answer(*clients: Any, producers: Any = None) -> Any:
    channel = {"channel_name": "mail", "clients": list(clients)}
    return {"topics": [{"topic_name": "orders", "channels": [channel]}], "producers": producers}


def test_consumers_come_first_and_who_does_not_answer_is_named() -> None:
    consumer = {
        "client_id": "w",
        "remote_address": "h:1",
        "ready_count": 2,
        "in_flight_count": 1,
        "user_agent": "go/1",
    }
    publisher = {
        "hostname": "shop",
        "pub_counts": [{"topic": "orders", "count": 5}, {"topic": "users", "count": 7}],
    }
    other = {"hostname": "other", "pub_counts": [{"topic": "users", "count": 7}]}
    found = asked(
        a=answer(consumer, producers=[publisher, other]), b=answer(consumer | {"client_id": "a\x1b[2J"})
    )
    assert found == Clients(
        "orders",
        [
            Client("mail", "a\\x1b[2J", "h:1", "node-b", 2, 1, program="go/1"),
            Client("mail", "w", "h:1", "node-a", 2, 1, program="go/1"),
            Client("", "shop", "", "node-a", published=5),
        ],
        3,
        ["node-down"],
    )


@pytest.mark.parametrize(
    "bad",
    [None, [], 7, {"topics": 3}, {"topics": [{"topic_name": "orders", "channels": "x"}]}, answer(3, None)],
)
def test_what_is_no_answer_of_an_nsqd_has_no_clients(bad: Any) -> None:
    assert asked(a=bad).listed == []


def test_there_is_a_limit() -> None:
    found = asked(a=answer(*({"client_id": str(number)} for number in range(MOST_CLIENTS + 5))))
    assert (len(found.listed), found.total) == (MOST_CLIENTS, MOST_CLIENTS + 5)
