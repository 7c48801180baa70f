"""What parts add to a broker beside its role: notices, statistics, and copies of its logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nsqd_py.broker.additions import Addition, Replication
from nsqd_py.broker.lifetime.shutdown import close as close_broker
from nsqd_py.broker.upkeep.mending import Filled, Repairs
from tests.support.broker_life import Life


class Copy:
    """A copy of the logs that has some ranges, or fails."""

    def __init__(
        self, has: Sequence[tuple[int, int]] = (), failure: Exception | None = None, name: str = "a standby"
    ) -> None:
        self.name = name
        self.asked: list[list[tuple[int, int]]] = []
        self._has = has
        self._failure = failure

    def fill(self, log: Any, path: Any, file: Any, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        self.asked.append(ranges)
        if self._failure is not None:
            raise self._failure
        return [each for each in ranges if each not in self._has]


def fill(copies: list[Copy], *ranges: tuple[int, int]) -> Filled:
    return Repairs(lambda: copies).fill(None, None, None, list(ranges))  # type: ignore[arg-type]


def test_copies_are_asked_one_after_the_other_for_what_is_left() -> None:
    first = Copy([(0, 10)])
    second = Copy([(20, 30)], name="the store")
    filled = fill([first, second, Copy(name="another")], (0, 10), (20, 30), (40, 50))
    assert filled == ([(40, 50)], "", ["a standby", "the store"])
    assert second.asked == [[(20, 30), (40, 50)]]


def test_a_copy_that_fails_is_no_reason_to_ask_no_other() -> None:
    failing = Copy(failure=OSError("away"))
    assert fill([failing, Copy([(0, 10)])], (0, 10)) == ([], "", ["a standby"])
    assert fill([Copy(), failing], (0, 10)) == ([(0, 10)], "away", [])


def test_without_copies_there_are_no_repairs() -> None:
    assert not Repairs(list).is_possible()
    assert Repairs(lambda: [Copy()]).is_possible()
    assert fill([], (0, 10)) == ([(0, 10)], "there is no other copy now", [])


class Shown(Addition):
    def __init__(self, name: str, notice: str | None) -> None:
        self._name = name
        self._notice = notice
        self.is_closed = False

    def notice(self) -> str | None:
        return self._notice

    def statistics(self) -> dict[str, Any]:
        return {self._name: 1}

    def close(self) -> None:
        self.is_closed = True


class Role(Replication):
    def notice(self) -> str | None:
        return "a standby"


def test_a_broker_shows_its_role_and_all_additions(tmp_path: Path) -> None:
    life = Life(tmp_path, lambda *_: None)
    broker = life.broker
    assert broker.additions.notice() is None
    assert broker.additions.statistics() == {}
    additions = [Shown("store", "the store is away"), Shown("other", None)]
    for addition in additions:
        broker.additions.add(addition)
    broker.additions.take_role(Role())
    assert broker.additions.notice() == "a standby; the store is away"
    assert broker.additions.statistics() == {"store": 1, "other": 1}
    close_broker(broker)
    assert all(addition.is_closed for addition in additions)
