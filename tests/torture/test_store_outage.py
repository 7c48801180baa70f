"""A sample of `make store-outage`: the store is away, the disk is full in the meantime, and nothing is lost."""

from __future__ import annotations

import os

import pytest

from tests.support.buckets import moto
from tests.torture.store_outage import campaign

pytestmark = [pytest.mark.ours, pytest.mark.crash]

AWAY_S = 9.0
RATE = 100.0
DISK_BYTES = 60_000_000


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts small disks")
@pytest.mark.slow
def test_nsqd_goes_on_while_its_store_is_away_and_its_disk_full(tmp_path, monkeypatch):
    with moto(tmp_path) as server:
        bucket = server.make_bucket()
        for name, value in bucket.environment().items():
            monkeypatch.setenv(name, value)
        all_figures = campaign(tmp_path, bucket, AWAY_S, RATE, DISK_BYTES)
    for acks, figures in enumerate(all_figures):
        assert not figures.problems, figures.report()
        assert figures.acknowledged > 20, acks
        assert any("bytes" in refusal for refusal in figures.refusals), figures.report()
        assert figures.lag_messages > 0, figures.report()
