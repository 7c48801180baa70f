"""A large first copy, in which memory must not grow with the size of the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standby.large_copy import run


@pytest.mark.slow
def test_a_copy_takes_little_memory_and_publishing_goes_on(tmp_path: Path) -> None:
    first, later = run(tmp_path, 400_000_000, 50_000)
    assert max(*first.most_mb, later.most_mb[0]) < 100
    assert later.most_mb[1] < 200  # a start maps one log file of 100 MB after the other
    assert first.published
    assert later.published
