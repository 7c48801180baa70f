"""What nsqadmin remembers of nsqds that do not answer, and of those that are gone."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from nsqadmin_py.cluster import node_views, views
from nsqadmin_py.cluster.findings import Findings
from nsqadmin_py.cluster.last_known import NodeMemory
from nsqadmin_py.history.document import decode, encode
from nsqadmin_py.history.series import History
from nsqd_py.cluster.model import FORGET_AFTER_S
from nsqd_py.cluster.problems import states
from nsqd_py.cluster.problems.memory import MOST_GONE, LastKnown
from tests.unit.nsqadmin.test_views import Cluster2, channel, stats, topic

EPOCH_S = 1_700_000_000.0
LONG_S = FORGET_AFTER_S + 1


class Console:
    """A cluster and the memory of its nsqds, round after round; `now_s` is also the time after EPOCH_S."""

    def __init__(self) -> None:
        self.cluster = Cluster2()
        self.memory = NodeMemory()

    def say(self, now_s: float, **answers: dict[str, Any]) -> None:
        self.cluster.say(now_s, **answers)
        self.memory.note_round(self.cluster, now_s, EPOCH_S + now_s)

    def fail(self, now_s: float, address: str = "a") -> None:
        self.cluster.fail(self.cluster.nodes[address], "Connection refused")
        self.say(now_s)

    def vanish(self, now_s: float, address: str = "a") -> None:
        """No nsqlookupd lists it any more, and it does not answer."""
        self.fail(now_s, address)
        list(self.cluster.removing_node(address))
        self.say(now_s + 2)

    def node(self, now_s: float, address: str = "a") -> dict[str, Any]:
        return node_views.nodes(self.cluster, now_s, self.memory).rows[address]

    def overview(self, now_s: float) -> dict[str, Any]:
        return views.overview(self.cluster, now_s, Findings(self.memory)).head


ORDERS = topic("orders", channel("x", depth=3, in_flight_count=2), depth=4, message_count=9)


def test_an_nsqd_that_hangs_has_failed_once_its_figures_are_in_no_sum() -> None:
    console = Console()
    console.say(10.0, a=stats(ORDERS))
    console.cluster.nodes["a"].is_slow = True
    console.say(14.0)
    assert console.node(14.0)["state"] == states.SLOW
    console.say(10.0 + LONG_S)
    assert (console.node(10.0 + LONG_S)["state"], console.node(10.0 + LONG_S)["depth"]) == (states.FAILED, 7)


def test_an_nsqd_that_comes_back_is_not_gone() -> None:
    console = Console()
    console.say(10.0, a=stats(ORDERS))
    console.vanish(12.0)
    console.say(20.0, a=stats(topic("orders")))
    assert (console.node(20.0)["state"], console.node(20.0)["depth"]) == (states.OK, 0)
    assert console.overview(20.0)["missing_depth"] == 0


def test_an_nsqd_that_answered_when_it_was_removed_is_not_gone() -> None:
    console = Console()
    console.say(10.0, a=stats(ORDERS))
    list(console.cluster.removing_node("a"))  # its nsqlookupd was taken out of the configuration
    console.say(12.0)
    assert console.memory.nodes == {}


def test_what_was_gone_is_gone_after_a_restart_too() -> None:
    console, again = Console(), Console()
    console.say(10.0, a=stats(ORDERS), b=stats(ORDERS), c=stats())
    console.vanish(12.0)
    again.memory.load(decode(encode(History(), console.memory.dump()), History()))
    again.cluster.unheard_lookups = 1
    again.say(100.0, c=stats())
    assert again.overview(100.0)["nodes_gone"] == 1
    again.cluster.unheard_lookups = 0  # only now it is known that b went in the meantime
    again.say(102.0, c=stats())
    assert [known.address for known in again.memory.gone()] == ["a", "b"]
    assert (again.node(102.0, "b")["seen_s"], again.node(102.0, "b")["depth"]) == (EPOCH_S + 10, 7)


def test_a_restart_keeps_the_versions_of_what_is_gone() -> None:
    console, again = Console(), Console()
    console.say(10.0, a=stats(ORDERS) | {"project_version": "1.2.3"})
    console.vanish(12.0)
    again.memory.load(orjson.loads(orjson.dumps(console.memory.dump())))
    assert (again.node(100.0)["version"], again.node(100.0)["project_version"]) == ("1.3.0", "1.2.3")


@pytest.mark.parametrize(
    "document", [None, 5, [5], [{}], [{"address": 5}], [{"address": "a", "seen_s": "x"}]]
)
def test_a_file_with_other_states_is_read_as_empty(document: Any) -> None:
    memory = NodeMemory()
    memory.load(document)
    assert memory.nodes == {}


def test_there_are_never_more_than_that() -> None:
    console = Console()
    for number in range(MOST_GONE):
        console.memory.nodes[str(number)] = LastKnown(
            str(number), float(number), is_silent=True, is_gone=True
        )
    console.say(10.0, a=stats())
    console.vanish(12.0)
    assert len(console.memory.gone()) == MOST_GONE
    assert "0" not in console.memory.nodes
    orjson.dumps(console.memory.dump())
