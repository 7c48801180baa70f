"""A few failovers by a lease; `python -m tests.standby.lease_failovers --count 200` makes many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standby.faults import FAULTS, STAYS
from tests.standby.lease_failovers import run
from tests.support.tally import Tally

pytestmark = [pytest.mark.ours, pytest.mark.usefixtures("needs_namespaces")]

EACH = 3
SHORT = ("unheard", "power-cut")


def fail_over(directory: Path, tally: Tally, count: int, *faults: str) -> None:
    report = run(directory, count, 2, faults, 0, print, "--sync-every=1")
    verdict = report.verdict
    tally(
        faults=len(report.happened),
        acknowledged=verdict.acknowledged,
        lost=len(report.lost),
        doubled=verdict.again,
    )
    print(*report.table(), sep="\n")
    assert report.violations() == []
    assert report.failovers == count
    assert verdict.acknowledged > 10 * count, "there was no load"


@pytest.mark.slow  # it compares moments of two machines
def test_two_failovers(tmp_path, tally):
    fail_over(tmp_path, tally, len(SHORT), *SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - STAYS))
def test_failovers_of_each_kind(tmp_path, tally, fault):
    fail_over(tmp_path, tally, EACH, fault, *STAYS)
