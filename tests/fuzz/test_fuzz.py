"""Each target for a moment, and all inputs that were ever found."""

from __future__ import annotations

import pytest

from tests.fuzz.engines import FOUND, replay, with_hypothesis
from tests.fuzz.targets import TARGETS

# pyarrow aborts the process on some damaged footers (a histogram of levels of another size than it should have): only
# `make fuzz`, where each target has a process of its own under atheris, tries those.
SAFE = [name for name in TARGETS if name != "archive_parquet"]


@pytest.mark.parametrize("name", SAFE)
def test_each_target_for_a_moment(name: str) -> None:
    count, found = with_hypothesis(TARGETS[name], 0.1, at_a_time=20)
    assert found is None
    assert count >= len(TARGETS[name].seeds)


@pytest.mark.parametrize("name", sorted(path.name for path in FOUND.iterdir() if "-" in path.name))
def test_what_was_found_is_mended(name: str) -> None:
    replay(name.partition("-")[0], (FOUND / name).read_bytes())
