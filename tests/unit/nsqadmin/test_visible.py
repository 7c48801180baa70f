"""The cluster as users see it who may not view all topics: the same as one that has only the topics that they see."""

from __future__ import annotations

from typing import Any

from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.permissions import VIEW, Grant, Scope
from nsqadmin_py.web.views_api import Views, ViewsOfUsers
from tests.unit.nsqadmin.test_cluster import ROUND_S, Cluster2, channel, stats, topic

EPOCH_S = 1_700_000_000.0
ORDERS_ONLY = Scope((Grant(VIEW, "orders*"),))
ORDERS = topic("orders", channel("archive", depth=3, message_count=3), message_count=3)


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
        list(self.findings.noting_round(self.cluster, self.now_s, EPOCH_S + self.now_s))

    def views(self) -> Views:
        return Views(self.cluster, self.findings, lambda: self.now_s)


def test_what_an_nsqd_reports_of_its_health_may_name_a_topic() -> None:
    console = Console()
    console.say(a=stats(ORDERS) | {"health": "NOK - the log of secret cannot be written"})
    row = ViewsOfUsers(console.views()).of(ORDERS_ONLY).read({"view": "node", "node": "a"}).head
    assert row["health"] == "NOK"
