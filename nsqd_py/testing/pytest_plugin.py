"""A pytest plugin, active wherever nsqd-py is installed: real nsqds for tests.

`nsqd_server`   an nsqd, the same for the whole session
`nsqd_topic`    a topic's name that no other test has; the topic is deleted after the test
`nsqd_cluster`  two nsqds and an nsqlookupd, the same for the whole session

The report of a failed test that used one of them shows depths, messages in flight, and the last lines of the log. Other
tests are left alone.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from nsqd_py.testing.embedded import EmbeddedCluster, Nsqd

_LOG_LINES = 10  # in a report
_POLL = re.compile(r" \d+ GET /(stats|nodes)\b")  # of `wait_for_depth` and the like, many times a second
_LONGEST_STEM = 40


@pytest.fixture(scope="session")
def nsqd_server() -> Iterator[Nsqd]:
    """A real nsqd on free ports, with its data in a temporary folder."""
    from nsqd_py.testing.embedded import embedded

    with embedded() as nsqd:
        yield nsqd


@pytest.fixture(scope="session")
def nsqd_cluster() -> Iterator[EmbeddedCluster]:
    """Two nsqds and an nsqlookupd on free ports."""
    from nsqd_py.testing.embedded import embedded

    with embedded(lookupd=True, nsqds=2) as cluster:
        yield cluster


@pytest.fixture
def nsqd_topic(request: pytest.FixtureRequest) -> Iterator[str]:
    """A new topic's name, made from the test's. Its topic is deleted after the test."""
    stem = re.sub(r"[^.a-zA-Z0-9_-]", "_", request.node.name)[:_LONGEST_STEM]
    topic = f"{stem}-{uuid.uuid4().hex[:12]}"
    yield topic
    for nsqd in _used_nsqds(request.node):
        with suppress(RuntimeError, OSError):  # it does not have the topic, or the test stopped it
            nsqd.post(f"/topic/delete?topic={topic}")


def _used_nsqds(item: pytest.Item) -> list[Nsqd]:
    used: dict[str, Any] = getattr(item, "funcargs", {})
    nsqds: list[Nsqd] = []
    if "nsqd_server" in used:
        nsqds.append(used["nsqd_server"])
    if "nsqd_cluster" in used:
        nsqds += used["nsqd_cluster"].nsqds
    return nsqds


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the nsqds to the report of a failed test."""
    report = yield
    if report.when == "call" and report.failed:
        for nsqd in _used_nsqds(item):
            report.sections.append((f"nsqd {nsqd.tcp_address}", _describe(nsqd)))
    return report


def _describe(nsqd: Nsqd) -> str:
    try:
        statistics = nsqd.text("/stats?include_mem=false")
    except (OSError, RuntimeError) as error:
        statistics = f"nsqd does not answer: {error}"
    log = [line for line in nsqd.log_lines(count=sys.maxsize) if not _POLL.search(line)]
    return "\n".join([statistics.rstrip(), "Last lines of its log:", *log[-_LOG_LINES:]])
