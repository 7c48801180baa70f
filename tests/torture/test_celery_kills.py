"""nsqd is killed again and again under a Celery worker: no task is lost, none runs twice, and the worker goes on."""

from __future__ import annotations

import time

import pytest

from tests.torture.celery_kills import Bed

pytestmark = [pytest.mark.ours, pytest.mark.crash]

LONG = pytest.param(100, marks=pytest.mark.slow)
STUCK_S = 60.0


@pytest.mark.parametrize("kills", [pytest.param(4, marks=pytest.mark.slow), LONG])
def test_kills_lose_no_task_and_stop_no_worker(tmp_path, kills):
    bed = Bed("nsqd-py", tmp_path, STUCK_S, seed=45)
    try:
        bed.run(kills, time.monotonic() + 3600, drain_s=STUCK_S)
    finally:
        bed.close()
    figures = bed.figures
    assert figures.kills == kills
    assert figures.accepted > 10 * kills
    assert not figures.lost
    assert not figures.twice
    assert (figures.ended, figures.stuck) == (0, 0)
