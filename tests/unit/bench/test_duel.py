"""Rounds of a scenario, with servers and loads that only say what they were given."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from bench import duel
from bench.duel import PEER, SUBJECT, Conditions, Contender, Duel
from bench.run import Amount, LoadError, Run
from bench.scenario import Scenario, Side

BOTH = [Contender(SUBJECT, ("ours",)), Contender(PEER, ("theirs",))]


@dataclass
class Runs:
    """What was run, and what it returns: one value after the other for each command."""

    values: dict[str, list[float]]
    commands: list[str] = field(default_factory=list)
    amounts: list[Amount] = field(default_factory=list)

    @contextmanager
    def server(self, daemon: Any, command: tuple[str, ...], flags: list[str], scratch: Any) -> Iterator[Any]:
        self.commands.append(command[0])
        yield SimpleNamespace(endpoint=None, version="1.0")

    def generate(self, load: str, endpoint: Any, amount: Amount, *more: Any) -> Run:
        self.amounts.append(amount)
        values = self.values[self.commands[-1]]
        if not values:
            raise LoadError("no\n  more")
        return Run(values.pop(0), 1, 1.0, 0.0, 0.0, 0.0)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs({"ours": [10.0, 12.0, 20.0], "theirs": [5.0, 4.0, 20.0]})
    monkeypatch.setattr(duel, "Server", runs.server)
    monkeypatch.setattr(duel, "generate", runs.generate)
    monkeypatch.setattr(duel.os, "sync", lambda: None)
    return runs


def scenario(**more: Any) -> Scenario:
    return Scenario("publish", "msg/s", Side(Amount(2, 1000)), Side(Amount(2, 50)), **more)


def test_the_order_turns_around_each_round_and_ratios_are_those_of_neighbours(ran: Runs) -> None:
    measured = Duel(scenario(), BOTH, rounds=3)
    while not measured.is_over:
        measured.run_round()
    assert ran.commands == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert measured.result.ratios() == [2.0, 3.0, 1.0]
    assert measured.result.median_ratio() == 2.0
    assert measured.result.median(SUBJECT) == 12.0


def test_where_lower_is_better_the_ratio_is_turned_around(ran: Runs) -> None:
    measured = Duel(scenario(lower_is_better=True), BOTH, rounds=1)
    measured.run_round()
    assert measured.result.ratios() == [0.5]


def test_a_peer_that_failed_runs_no_more_and_the_others_go_on(ran: Runs) -> None:
    ran.values["theirs"] = [5.0]
    measured = Duel(scenario(), BOTH, rounds=3)
    while not measured.is_over:
        measured.run_round()
    assert ran.commands.count("theirs") == 2 and ran.commands.count("ours") == 3
    assert measured.result.failures == {PEER: "no more"}
    assert measured.result.ratios() == [2.0]


def test_the_failure_of_ours_ends_the_row_and_keeps_its_runs(ran: Runs) -> None:
    ran.values["ours"] = [10.0]
    measured = Duel(scenario(), BOTH, rounds=3)
    for _ in range(2):
        assert not measured.is_over
        measured.run_round()
    assert measured.is_over and measured.result.verdict == "failed"
    assert [run.value for run in measured.result.runs[SUBJECT]] == [10.0]


@pytest.mark.parametrize(
    ("row", "given", "amounts"),
    [
        ({}, Conditions(), [(2, 1000), (2, 50)]),
        ({}, Conditions(seconds=0.5, messages=200), [(0.5, 200), (0.5, 50)]),  # the most messages
        ({"least_s": 1.5}, Conditions(seconds=0.5), [(1.5, 1000), (1.5, 50)]),
        ({"place": 10}, Conditions(messages=200), [(2, 1000), (2, 50)]),  # on an axis, the amount is the row's
    ],
)
def test_the_amount_of_a_run(ran: Runs, row: dict[str, Any], given: Conditions, amounts: list[Any]) -> None:
    Duel(scenario(**row), BOTH, 1, given).run_round()
    assert [(amount.seconds, amount.messages) for amount in ran.amounts] == amounts
