"""The three daemons for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess, ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess


@pytest.fixture(scope="module")
def daemons(tmp_path_factory) -> Iterator[tuple[ServerProcess, ...]]:
    """nsqd, its nsqlookupd, and an nsqadmin of both."""
    folder = tmp_path_factory.mktemp("daemons")
    with NsqlookupdProcess(folder / "nsqlookupd.log").start() as lookupd:
        nsqd_flags = (f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}",)
        admin_flags = (
            "--history-file=",
            "--poll-interval=250ms",
            f"--lookupd-http-address={lookupd.http_address}",
        )
        with (
            NsqdProcess(folder / "nsqd", *nsqd_flags).start() as nsqd,
            NsqadminProcess(folder / "nsqadmin.log", *admin_flags).start() as admin,
        ):
            yield nsqd, lookupd, admin
