"""A few failovers by a lease; `python -m tests.standby.lease_failovers --count 200` makes many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standby.lease_failovers import FAULTS, run
from tests.support.etcd import ETCD


@pytest.mark.slow
@pytest.mark.skipif(ETCD is None, reason="no etcd here")
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_nothing_that_was_acknowledged_is_lost(fault: str, tmp_path: Path) -> None:
    report = run(tmp_path, 3, 2, [fault], 0, print)
    assert not report.lost, report
    assert report.acknowledged
