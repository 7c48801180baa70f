"""A directory of logs, whose files are closed after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fakes import close_descriptors
from tests.unit.log_bench import Disk


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    close_descriptors(tmp_path)


@pytest.fixture
def disk(directory: Path) -> Disk:
    return Disk(directory)
