"""nsq-worker, its processes and its nsqd are killed again and again: nothing is lost, stuck, or applied twice with Once."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from tests.torture.worker_kills import Campaign, report

pytestmark = [pytest.mark.ours, pytest.mark.crash]

# Other tests run at the same time; `make worker-kills` has the limit that is promised.
LIMIT_S = 10.0
LONG = pytest.param(200, 3, marks=pytest.mark.slow)


@pytest.mark.parametrize(("kills", "processes"), [(8, 2), LONG])
def test_kills_lose_nothing_and_stop_nothing(tmp_path, kills, processes):
    with closing(Campaign(tmp_path / "kills", processes, seed=45, limit_s=LIMIT_S)) as campaign:
        campaign.run(kills, time.monotonic() + 3600)
        figures = campaign.finish()
    assert figures.kill_count == kills
    assert figures.accepted > 10 * kills
    assert not figures.problems(), report(figures)
