"""Fixtures that start one server for all tests of a module: `nsqd = module_nsqd(*flags)` at the top of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.nsqd_process import NsqdProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess


def module_nsqd(*flags: str) -> Any:
    """Return the fixture of an nsqd with these flags."""

    @pytest.fixture(scope="module")
    def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
        process = NsqdProcess(tmp_path_factory.mktemp("nsqd") / "data", *flags)
        yield process.start()
        process.destroy()

    return nsqd


def module_nsqlookupd(*flags: str) -> Any:
    """Return the fixture of an nsqlookupd with these flags."""

    @pytest.fixture(scope="module")
    def nsqlookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqlookupdProcess]:
        process = NsqlookupdProcess(tmp_path_factory.mktemp("nsqlookupd") / "log", *flags)
        yield process.start()
        process.destroy()

    return nsqlookupd
