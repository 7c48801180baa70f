"""The three daemons for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ...]]:
    """nsqd, its nsqlookupd, and an nsqadmin of both."""
    folder = tmp_path_factory.mktemp("daemons")
    lookupd = NsqlookupdProcess(folder / "nsqlookupd.log").start()
    nsqd = NsqdProcess(folder / "nsqd", f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}").start()
    flags = ("--history-file=", "--poll-interval=250ms", f"--lookupd-http-address={lookupd.http_address}")
    admin = NsqadminProcess(folder / "nsqadmin.log", *flags).start()
    yield nsqd, lookupd, admin
    for process in (admin, nsqd, lookupd):
        process.destroy()
