"""Fixtures that start one server for all tests of a module: `nsqd = module_nsqd(*flags)` at the top of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import nsqd_py
from nsqd_py.testing.embedded import Nsqd
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess


def _module_server(kind: Any, flags: tuple[str, ...]) -> Any:
    @pytest.fixture(scope="module")
    def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
        with kind(tmp_path_factory.mktemp("server") / "server", *flags) as process:
            yield process.start()

    return server


def module_nsqd(*flags: str) -> Any:
    """Return the fixture of an nsqd with these flags."""
    return _module_server(NsqdProcess, flags)


def module_embedded(*flags: str) -> Any:
    """Return the fixture of an nsqd of `nsqd_py.embedded` with these flags."""

    @pytest.fixture(scope="module")
    def embedded() -> Iterator[Nsqd]:
        with nsqd_py.embedded(*flags) as nsqd:
            yield nsqd

    return embedded


def delete_topics(nsqd: Nsqd | NsqdProcess) -> None:
    """Delete what topics a test has left."""
    for topic in nsqd.stats()["topics"] or ():
        nsqd.post(f"/topic/delete?topic={topic['topic_name']}")


def module_nsqlookupd(*flags: str) -> Any:
    """Return the fixture of an nsqlookupd with these flags."""
    return _module_server(NsqlookupdProcess, flags)
