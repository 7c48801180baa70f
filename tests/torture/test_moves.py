"""A sample of `make moves`: two nsqds get other addresses at each start, one of them is damaged, and nothing is lost."""

from __future__ import annotations

import time

import pytest

from tests.torture.moves import SETTINGS, campaign

pytestmark = [pytest.mark.ours, pytest.mark.crash, pytest.mark.slow]


@pytest.mark.parametrize("setting", SETTINGS)
def test_nothing_is_lost_where_addresses_change(tmp_path, setting):
    figures = campaign(tmp_path, 8, 47, time.monotonic() + 3600, settings=(setting,))
    assert figures.rounds.total() == 8
    assert not figures.problems, "\n".join([*figures.report(), *figures.problems])
