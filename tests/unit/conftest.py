"""Directories of logs, whose files are closed after each test, and a quiet hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from tests.unit.fakes import close_descriptors


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    close_descriptors(tmp_path)


@pytest.fixture
def quiet_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is printed of errors of greenlets and callbacks."""
    monkeypatch.setattr(gevent.get_hub(), "handle_error", lambda *_: None)
