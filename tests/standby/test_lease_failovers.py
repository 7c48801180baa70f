"""A few failovers by a lease; `python -m tests.standby.lease_failovers --count 200` makes many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.standby.faults import FAULTS, STAYS
from tests.standby.lease_failovers import run
from tests.standby.lease_worlds import BucketWorld, EtcdWorld, LeaseWorld
from tests.support.network import Host
from tests.support.tally import Tally

pytestmark = [pytest.mark.ours, pytest.mark.usefixtures("needs_namespaces")]

MakeWorld = Callable[[Path, Host], LeaseWorld]

EACH = 3
SHORT = ("unheard", "power-cut")
SHORT_OF_BUCKETS = ("unheard", "key-overwritten")
# A request has a quarter of it, and meets a proxy and a busy machine.
BUCKET_TTL_S = 5
FAULT_RATE = 0.03


def fail_over(
    directory: Path, tally: Tally, count: int, *faults: str, make_world: MakeWorld = EtcdWorld
) -> None:
    ttl_s = 2 if make_world is EtcdWorld else BUCKET_TTL_S
    report = run(directory, count, ttl_s, faults, 0, print, "--sync-every=1", make_world=make_world)
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
def test_two_failovers_with_a_bucket_that_is_not_reliable(tmp_path, tally):
    pytest.importorskip("obstore")
    make_world = partial(BucketWorld, seed=0, fault_rate=FAULT_RATE)
    fail_over(tmp_path, tally, len(SHORT_OF_BUCKETS), *SHORT_OF_BUCKETS, make_world=make_world)


@pytest.mark.slow
@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - STAYS))
def test_failovers_of_each_kind(tmp_path, tally, fault):
    fail_over(tmp_path, tally, EACH, fault, *STAYS)
