"""Fixtures that start nsqd and nsqlookupd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.neighbours import room_for
from tests.support.nsqd_process import MakeNsqd, NsqdProcess
from tests.support.nsqlookupd_process import MakeNsqlookupd, NsqlookupdProcess

# How long an example takes says more about the machine than about what is tested.
settings.register_profile("any time", deadline=None)
settings.load_profile("any time")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[bool | None]:
    with room_for(item):
        return (yield)


@pytest.fixture
def make_nsqd(tmp_path: Path) -> Iterator[MakeNsqd]:
    """`make_nsqd(*flags)` starts an nsqd on a data directory of its own."""
    processes: list[NsqdProcess] = []

    def make(*flags: str) -> NsqdProcess:
        process = NsqdProcess(tmp_path / f"nsqd{len(processes)}", *flags)
        processes.append(process)
        return process.start()

    yield make
    for process in processes:
        process.destroy()


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    """An nsqd with default flags."""
    return make_nsqd()


@pytest.fixture
def make_nsqlookupd(tmp_path: Path) -> Iterator[MakeNsqlookupd]:
    """`make_nsqlookupd(*flags)` starts an nsqlookupd."""
    processes: list[NsqlookupdProcess] = []

    def make(*flags: str) -> NsqlookupdProcess:
        process = NsqlookupdProcess(tmp_path / f"nsqlookupd{len(processes)}.log", *flags)
        processes.append(process)
        return process.start()

    yield make
    for process in processes:
        process.destroy()
