"""Each target for a moment, and all inputs that were ever found."""

from __future__ import annotations

import pytest

from tests.fuzz.engines import FOUND, replay, with_hypothesis
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_each_target_for_a_moment(name):
    count, found = with_hypothesis(TARGETS[name], 0.1, at_a_time=20)
    assert found is None
    assert count >= len(TARGETS[name].seeds)


@pytest.mark.parametrize("name", sorted(path.name for path in FOUND.iterdir() if "-" in path.name))
def test_what_was_found_is_mended(name):
    replay(name.partition("-")[0], (FOUND / name).read_bytes())
