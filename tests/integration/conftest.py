"""One nsqd for the tests of a module: starting it takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nsqd_process import NsqdProcess


@pytest.fixture(scope="module")
def shared_nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqdProcess]:
    """For tests that leave it as it was, or each use a topic of their own."""
    process = NsqdProcess(tmp_path_factory.mktemp("shared") / "nsqd")
    yield process.start()
    process.destroy()


@pytest.fixture
def nsqd_without_topics(shared_nsqd: NsqdProcess) -> Iterator[NsqdProcess]:
    """The same; what topics the last test left are deleted."""
    yield shared_nsqd
    for topic in shared_nsqd.stats()["topics"] or ():
        shared_nsqd.post(f"/topic/delete?topic={topic['topic_name']}")
