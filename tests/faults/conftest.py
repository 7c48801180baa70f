"""nsqd on a disk that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.faulty_nsqd import FaultyNsqd


class MakeFaulty(Protocol):
    """Starts an nsqd on a disk that fails when it is asked to."""

    def __call__(self, *flags: str) -> FaultyNsqd: ...


@pytest.fixture
def make_faulty(tmp_path: Path) -> Iterator[MakeFaulty]:
    processes: list[FaultyNsqd] = []

    def make(*flags: str) -> FaultyNsqd:
        process = FaultyNsqd(tmp_path / f"nsqd{len(processes)}", *flags)
        processes.append(process)
        process.start()
        return process

    yield make
    for process in processes:
        process.destroy()
