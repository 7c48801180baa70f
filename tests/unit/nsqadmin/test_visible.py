"""The cluster as users see it who may not view all topics: the same as one that has only the topics that they see."""

from __future__ import annotations

from typing import Any

import pytest

from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.cluster.last_known import FIGURES
from nsqadmin_py.permissions import VIEW, Grant, Scope
from nsqadmin_py.web.answers import NotThere
from nsqadmin_py.web.views_api import Views, VisibleViews
from tests.unit.nsqadmin.test_cluster import ROUND_S, Cluster2, channel, stats, topic

EPOCH_S = 1_700_000_000.0
ORDERS_ONLY = Scope((Grant(VIEW, "orders*"),))
ORDERS = topic("orders", channel("archive", depth=3, message_count=3), message_count=3)
SECRET = topic("secret", channel("hidden", depth=79, clients=0, message_count=79), depth=11, message_count=79)
DEAD = topic("secret.dead", depth=5, message_count=5)


class Console:
    """Rounds of a cluster of the nsqds a and b; with `hides`, all answers are without the hidden topics."""

    def __init__(self, *, hides: bool = False) -> None:
        self.hides = hides
        self.cluster = Cluster2()
        self.findings = Findings()
        self.now_s = 100.0

    def say(self, **answers: dict[str, Any]) -> None:
        self.now_s += ROUND_S
        if self.hides:
            for answer in answers.values():
                answer["topics"] = [row for row in answer["topics"] if "secret" not in row["topic_name"]]
        self.cluster.say(self.now_s, **answers)
        self.findings.note_round(self.cluster, self.now_s, EPOCH_S + self.now_s)

    def views(self) -> Views:
        return Views(self.cluster, self.findings, lambda: self.now_s, lambda: EPOCH_S + self.now_s)


def life_of(console: Console) -> Console:
    """Two rounds; then b is killed, and nobody lists it any more."""
    for _ in range(2):
        found = {"topics": [{"topic": name, "tombstoned": True} for name in ("orders", "secret")]}
        if console.hides:
            found["topics"].pop()
        console.cluster.add_node("a", found)
        console.say(a=stats(ORDERS, SECRET, DEAD), b=stats(SECRET, ORDERS))
    console.cluster.fail(console.cluster.nodes["b"], "Connection refused")
    console.say(a=stats(ORDERS, SECRET, DEAD))
    console.cluster.remove_node("b")
    console.say(a=stats(ORDERS, SECRET, DEAD))
    return console


QUERIES = [
    {"view": "overview"},
    {"view": "topics"},
    {"view": "topics", "search": "hidden"},
    {"view": "channels"},
    {"view": "topic", "topic": "orders"},
    {"view": "channel", "topic": "orders", "channel": "archive"},
    {"view": "attention"},
    {"view": "nodes"},
    {"view": "node", "node": "a"},
    {"view": "node", "node": "b"},
]


def without_gone(document: dict[str, Any]) -> dict[str, Any]:
    """Drop the metrics of an nsqd that is gone: they are not known by topic, and so such users see none."""
    for row in (*document["rows"], document):
        row.pop("missing_depth", None)
        for figure in FIGURES if row.get("state") == "gone" else ():
            row.pop(figure)
        if row.get("kind") == "node_gone":
            row["text"] = row["text"].partition(";")[0]
    return document


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: "-".join(query.values()))
def test_hidden_topics_do_not_exist(query: dict[str, str]) -> None:
    whole, without = life_of(Console()), life_of(Console(hides=True))
    seen, wanted = VisibleViews(whole.views(), ORDERS_ONLY).document(query), without.views().document(query)
    assert without_gone(seen) == without_gone(wanted)
    assert "secret" not in str(seen)


def test_a_hidden_topic_is_not_found() -> None:
    views = VisibleViews(life_of(Console()).views(), ORDERS_ONLY)
    for query in ({"view": "topic", "topic": "secret"}, {"view": "channel", "topic": "secret", "channel": "hidden"}):
        with pytest.raises(NotThere, match="TOPIC_NOT_FOUND"):
            views.read(query)


def test_each_round_is_seen() -> None:
    console = life_of(Console())
    views = VisibleViews(console.views(), ORDERS_ONLY)
    assert views.read({"view": "overview"}).head["depth"] == 3
    console.say(a=stats(topic("orders", channel("archive", depth=8, message_count=8), message_count=8), SECRET))
    assert views.read({"view": "overview"}).head["depth"] == 8


def test_what_an_nsqd_reports_of_its_health_may_name_a_topic() -> None:
    console = Console()
    console.say(a=stats(ORDERS) | {"health": "NOK - the log of secret cannot be written"})
    row = VisibleViews(console.views(), ORDERS_ONLY).read({"view": "node", "node": "a"}).head
    assert row["health"] == "NOK"
