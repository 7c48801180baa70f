"""Short jobs of a crowd of greenlets: sockets and other clients are served in between. Counted in jobs, not in time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import gevent
import pytest

from nsqd_py.runtime.pacing import TURNS_S, Turns

CROWD = 100
# Each job takes longer than all jobs of an iteration may. On a busy machine, some have their turn before the last has asked.
SOON = CROWD // 4


class Served:
    """The order in which greenlets had their turns."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.turns = Turns(gevent.get_hub().loop)
        self.greenlets: list[gevent.Greenlet[..., None]] = []

    def ask(self, name: str, address: str, kind: str) -> None:
        self.greenlets.append(gevent.spawn(self._work, name, address, kind))

    def _work(self, name: str, address: str, kind: str) -> None:
        self.turns.wait(address, kind)
        self.order.append(name)
        end_s = time.perf_counter() + TURNS_S
        while time.perf_counter() < end_s:
            pass

    def place_of(self, name: str) -> int:
        gevent.joinall(self.greenlets, timeout=40)
        return self.order.index(name)


@pytest.fixture
def crowd() -> Iterator[Served]:
    """Many requests of one client for the same."""
    served = Served()
    for number in range(CROWD):
        served.ask(f"crowd{number}", "192.0.2.1", "GET /a")
    yield served
    gevent.killall(served.greenlets)


@pytest.mark.parametrize(("address", "kind"), [("192.0.2.1", "GET /ping"), ("192.0.2.2", "GET /a")])
def test_who_asks_for_something_else_or_from_elsewhere_is_next(
    crowd: Served, address: str, kind: str
) -> None:
    crowd.ask("neighbour", address, kind)
    assert crowd.place_of("neighbour") <= SOON
    assert sorted(crowd.order) == sorted(["neighbour", *(f"crowd{number}" for number in range(CROWD))])


def test_a_crowd_is_served_in_its_order(crowd: Served) -> None:
    crowd.ask("last", "192.0.2.1", "GET /a")
    assert crowd.place_of("last") == CROWD
    assert crowd.order[:-1] == [f"crowd{number}" for number in range(CROWD)]


def test_timers_ring_in_between(crowd: Served) -> None:
    served_by_then = []
    gevent.spawn_later(0.0, lambda: served_by_then.append(len(crowd.order)))
    crowd.place_of("crowd0")
    assert served_by_then[0] <= SOON


def test_one_that_is_killed_holds_up_nobody(crowd: Served) -> None:
    while not crowd.order:
        gevent.sleep(0)
    crowd.greenlets[-2].kill()
    assert crowd.place_of(f"crowd{CROWD - 1}") == CROWD - 2


def test_alone_nobody_waits() -> None:
    served = Served()
    iteration = gevent.get_hub().loop.iteration
    served.turns.wait("192.0.2.1", "GET /a")
    assert gevent.get_hub().loop.iteration == iteration
