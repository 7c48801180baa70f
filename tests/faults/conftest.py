"""nsqd on a disk that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.nsqd_process import started


class MakeFaulty(Protocol):
    """Starts an nsqd on a disk that fails when it is asked to."""

    def __call__(self, *flags: str) -> FaultyNsqd: ...


@pytest.fixture
def make_faulty(tmp_path) -> Iterator[MakeFaulty]:
    with started(FaultyNsqd, tmp_path / "nsqd") as start:
        yield start
