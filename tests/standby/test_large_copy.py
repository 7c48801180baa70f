"""A small run of `python -m tests.standby.large_copy`, whose memory must not grow with the size of the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.standby.large_copy import run


@pytest.mark.slow
def test_a_copy_takes_little_memory_and_publishing_goes_on(tmp_path: Path) -> None:
    first, later = run(tmp_path, 400_000_000, 50_000)
    assert max(first.primary_mb, first.standby_mb, later.primary_mb) < 100
    assert later.standby_mb < 200  # a start maps one log file of 100 MB after the other
    assert first.latencies_ms
    assert later.latencies_ms
