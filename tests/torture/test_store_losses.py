"""A sample of `make store-losses`: machines and disks are destroyed under load, and nothing that was promised is lost."""

from __future__ import annotations

import time

import pytest

from tests.support.buckets import moto
from tests.torture.store_losses import FAULTS, campaign

pytestmark = [pytest.mark.ours, pytest.mark.crash]

LONG = pytest.param(40, 1, marks=pytest.mark.slow)


@pytest.mark.parametrize(("kills", "acks"), [(3, 1), LONG])
def test_what_the_store_has_acknowledged_outlives_the_machine(tmp_path, monkeypatch, kills, acks):
    with moto(tmp_path) as server:
        bucket = server.make_bucket()
        for name, value in bucket.environment().items():
            monkeypatch.setenv(name, value)
        ends_s = time.monotonic() + 3600
        figures = campaign(tmp_path / "machines", bucket, kills, acks, 47, FAULTS, ends_s)
    assert sum(figures.kinds.values()) == kills
    assert figures.acknowledged > 10 * kills
    assert not figures.problems(), figures.report()
