import re
import sys
from pathlib import Path

import pytest

from bench.__main__ import chosen_rows
from bench.duel import PEER, SUBJECT
from bench.peers.setups import GO, LIMIT, OURS
from bench.programs import Programs
from bench.run import Amount
from bench.scenario import Scenario, Side, Work
from bench.server import NSQLOOKUPD
from bench.sweeps import SECTIONS

SIDE = Side(Amount(1, 1))
PYTHON = (sys.executable, "-m")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("nsqd", "nsqlookupd", "nsq_tail"):
        program = tmp_path / name
        program.touch()
        program.chmod(0o755)
    return tmp_path


def found(programs: Programs, scenario: Scenario) -> dict[str, tuple[str, ...]]:
    return {contender.role: contender.command for contender in programs.contenders(scenario)}


def test_peers_come_from_the_folder_and_ours_are_modules(folder: Path) -> None:
    programs = Programs(None, None, [folder])
    lookup = Scenario("lookup", "ms", SIDE, SIDE, daemon=NSQLOOKUPD)
    assert found(programs, lookup) == {
        SUBJECT: (*PYTHON, "nsq_apps.nsqlookupd"), PEER: (str(folder / "nsqlookupd"),),
    }  # fmt: skip
    tail = Scenario("tail", "msg/s", SIDE, SIDE, work=Work("tail", ("nsq_apps.nsq_tail",), "nsq_tail"))
    assert found(programs, tail) == {SUBJECT: (*PYTHON, "nsq_apps.nsq_tail"), PEER: (str(folder / "nsq_tail"),)}


def test_a_row_of_setups_has_those_that_are_there(folder: Path) -> None:
    scenario = Scenario("publish", "msg/s", SIDE, SIDE, setups=(OURS, GO, LIMIT))
    assert list(found(Programs(None, None, [folder]), scenario)) == [SUBJECT, "Go nsqd", "limit"]
    assert list(found(Programs(None, None, None), scenario)) == [SUBJECT, "limit"]


def test_another_nsqd_takes_the_place_of_ours(folder: Path) -> None:
    programs = Programs(("/bin/other",), None, [folder])
    assert found(programs, Scenario("publish", "msg/s", SIDE, SIDE, setups=(OURS, GO)))[SUBJECT] == ("/bin/other",)
    assert found(programs, Scenario("mpub", "msg/s", SIDE, SIDE))[SUBJECT] == ("/bin/other",)


def test_a_load_without_its_peer_is_one_row(folder: Path) -> None:
    alone, beside = Programs(None, None, None), Programs(None, None, [folder])
    on_disk = Scenario("mpub", "msg/s", SIDE, SIDE, peer_setting="on disk")
    assert beside.can_run(on_disk) and not alone.can_run(on_disk)
    assert alone.can_run(Scenario("mpub", "msg/s", SIDE, SIDE))
    assert found(alone, Scenario("mpub-sync", "msg/s", SIDE, SIDE, beside_itself=True)).keys() == {SUBJECT, PEER}


def test_long_rows_come_last_so_that_an_interruption_loses_little(folder: Path) -> None:
    chosen = chosen_rows(re.compile(""), Programs(None, None, [folder]), has_generator=True, quick=False)
    rounds = [scenario.rounds for scenario in chosen]
    first_long = rounds.index(1)
    assert set(rounds[first_long:]) == {1}
    assert {scenario.section for scenario in chosen} == {
        *SECTIONS, "nsqd", "neutral", "standby", "nsqlookupd", "tools", "clients", "nsqadmin", "spark",
    }  # fmt: skip
