"""A log in a directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.log_bench import Disk


@pytest.fixture
def disk(directory: Path) -> Disk:
    return Disk(directory)
