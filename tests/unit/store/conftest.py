"""What the tests of claims share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.store.claimed_store import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
