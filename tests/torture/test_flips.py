"""A sample of `make flips`: bits flip in a store, in a data path and in a standby's copy, and nothing is lost or silent."""

from __future__ import annotations

import time

import pytest

from tests.torture.flips import SETTINGS, campaign

pytestmark = [pytest.mark.ours, pytest.mark.crash]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("flips", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_flipped_bits_are_found_and_repaired(tmp_path, setting, flips):
    figures = campaign(tmp_path, flips, 47, time.monotonic() + 3600, settings=(setting,))
    assert figures.count == flips
    assert figures.found.total() >= flips // 4
    assert not figures.problems(), "\n".join([*figures.report(), *figures.problems()])
