"""A keeper next to a store in memory."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import gevent
import pytest
from gevent.event import Event

from nsqd_py.lease.keeper import MARGIN, LeaseKeeper
from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseState, Note
from tests.support.nsqd_process import wait_until
from tests.unit.fakes import FakeLog

TTL_S = 1.5


class Store:
    """One lease. `is_away`: the store refuses all requests; `answers`: it answers at all.

    Without an owner, the last one has released the lease.
    """

    key = title = note_title = "nsqd-py/orders"
    delete_command = "etcdctl del nsqd-py/orders"

    def __init__(self) -> None:
        self.owner = ""
        self.number = self.polls = 0
        self.is_away = False
        self.answers = Event()
        self.answers.set()

    def poll(self, handle: str = "") -> LeaseState:
        self._answer()
        self.polls += 1
        if not self.owner:
            return LeaseState(turn=self.number + 1, is_released=True)
        return LeaseState(self.number, "lease", self.owner, turn=self.number)

    def acquire(self, holder: str, state: LeaseState) -> Lease | None:
        self._answer()
        if self.owner:
            return None
        self.owner = holder
        self.number += 1
        return Lease(self.number, "lease", holder)

    def renew(self, lease: Lease) -> None:
        self._answer()
        if not self.owner or lease.number != self.number:
            raise LeaseLost("another holder has the lease")

    def release(self, lease: Lease) -> None:
        self._answer()
        self.owner = ""

    def note(self) -> Note:
        return Note("", 0)

    def write_note(self, lease: Lease, text: str, revision: int) -> int:
        return revision + 1

    def _answer(self) -> None:
        self.answers.wait()
        if self.is_away:
            raise LeaseError("no answer")


class Side:
    """A keeper, and what it has said."""

    def __init__(self, store: Store, name: str) -> None:
        self.said: list[str] = []
        self.may_take = True
        self.keeper = LeaseKeeper(store, name, TTL_S, FakeLog(), lambda: self.may_take, self._changed)
        self.keeper.start()

    def _changed(self) -> None:
        other = self.keeper.other_holder
        self.said.append("taken" if self.keeper.is_held else f"of {other}" if other else "free")

    def wait_for(self, *said: str) -> None:
        until(lambda: self.said == list(said), f"{said}, is {self.said}")


def until(condition: Callable[[], object], what: str) -> None:
    wait_until(lambda: gevent.sleep(0.01) or condition(), 40, what)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_lease_that_cannot_be_renewed_ends_here_before_it_ends_in_the_store(
    store: Store, hangs: bool
) -> None:
    side = Side(store, "first")
    side.wait_for("taken")
    store.is_away = True
    if hangs:
        store.answers.clear()
    assert side.keeper.remaining_s <= TTL_S * (1 - MARGIN)
    side.wait_for("taken", "free")
    assert not side.keeper.is_held
    store.is_away = False
    store.answers.set()
    store.owner = ""  # it has ended there too
    side.wait_for("taken", "free", "taken")
    side.keeper.close()


@pytest.mark.parametrize("answer", [False, LeaseError("no answer")])
def test_who_was_suspended_before_it_took_the_lease_asks_once_more_as_its_holder(
    store: Store, answer: bool | LeaseError
) -> None:
    """Another holder may have come and gone between the question and the lease."""
    asked = []
    answers = Mock(side_effect=[True, answer, True, True])

    def may_take() -> bool:
        asked.append(store.owner)
        return answers()

    held = []
    keeper = LeaseKeeper(store, "first", TTL_S, FakeLog(), may_take, lambda: held.append(keeper.is_held))
    keeper.start()
    until(lambda: held, "the lease")
    keeper.close()
    assert asked == ["", "first", "", "first"], "the first lease was given back"
    assert held == [True]


def test_who_may_not_take_the_lease_leaves_it_to_others(store: Store) -> None:
    side = Side(store, "first")
    side.may_take = False
    other = Side(store, "second")
    other.wait_for("taken")
    side.wait_for("of second")
    other.keeper.close()
    side.wait_for("of second", "free")
    side.may_take = True
    side.wait_for("of second", "free", "taken")
    side.keeper.close()


def test_a_lease_of_the_last_life_is_nobody_elses(store: Store) -> None:
    store.owner = "first"
    side = Side(store, "first")
    until(lambda: store.polls > 2, "it to poll")
    assert side.said == []
    store.owner = ""
    side.wait_for("taken")
    side.keeper.close()
