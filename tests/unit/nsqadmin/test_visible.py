"""The cluster as users see it who may not view all topics."""

from __future__ import annotations

from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.permissions import VIEW, Grant, Scope
from nsqadmin_py.web.views_api import Views, ViewsOfUsers
from tests.unit.nsqadmin.test_cluster import Cluster2, stats


def test_what_an_nsqd_reports_of_its_health_may_name_a_topic() -> None:
    cluster = Cluster2()
    cluster.say(100.0, a=stats() | {"health": "NOK - the log of secret cannot be written"})
    views = ViewsOfUsers(Views(cluster, Findings(), lambda: 100.0)).of(Scope((Grant(VIEW, "orders*"),)))
    assert views.read({"view": "node", "node": "a"}).head["health"] == "NOK"
