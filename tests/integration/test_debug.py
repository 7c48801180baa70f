"""/debug of running daemons, and that nobody waits for it."""

from __future__ import annotations

import re
import threading

import pytest

from nsqd_py.version import version_string
from tests.support.background import Background
from tests.support.nsqd_process import HTTPAnswer, NsqdProcess, ServerProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.wire import OK, mpub

pytestmark = pytest.mark.ours


@pytest.fixture(params=["nsqd", "nsqlookupd"])
def daemon(request, tmp_path) -> ServerProcess:
    process: ServerProcess
    process = (
        NsqdProcess(tmp_path / "nsqd")
        if request.param == "nsqd"
        else NsqlookupdProcess(tmp_path / "nsqlookupd.log")
    )
    process.is_executed = True  # /debug/pprof/cmdline shows its command line
    request.addfinalizer(process.destroy)
    return process.start()


def page(daemon: ServerProcess, path: str, method: str = "GET") -> str:
    answer = daemon.http(method, path)
    assert answer.status == 200, answer
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.text


def test_the_paths_of_each_daemon(daemon):
    """One start serves all of them."""
    path = "/debug/pprof/" if isinstance(daemon, NsqdProcess) else "/debug/pprof"  # as in Go
    for method, listed in re.findall(r"^(\w+) +(/\S+) ", page(daemon, path), re.M):
        assert page(daemon, listed.replace("profile", "profile?seconds=1"), method) or "profile" in listed
    stacks = page(daemon, "/debug/pprof/goroutine")
    assert re.search(r"^1 greenlet waiting\n.*\.daemon\.\w+\.run ", stacks, re.DOTALL | re.M)
    assert re.search(r"^1 thread MainThread$", stacks, re.M)
    assert "--tcp-address=127.0.0.1:0" in page(daemon, "/debug/pprof/cmdline").split("\0")
    assert (again := daemon.http("POST", "/debug/freememory")).status == 429, again


@pytest.mark.parametrize("seconds", ["0", "121", "soon"])
def test_a_profile_has_a_length(nsqd, seconds):
    assert nsqd.http("GET", f"/debug/pprof/profile?seconds={seconds}").refusal == "400 INVALID_ARG_SECONDS"


class Publisher(Background):
    """Publishes to a topic without end, and counts the batches."""

    def __init__(self, nsqd: NsqdProcess) -> None:
        super().__init__(self._publish)
        self._nsqd = nsqd
        self.batches = 0

    def _publish(self) -> None:
        batch = mpub("busy#ephemeral", [b"x" * 100] * 50)
        with self._nsqd.connect() as client:
            while not self.is_over.is_set():
                assert client.ask(batch) == OK
                self.batches += 1


def in_background(nsqd: NsqdProcess, path: str) -> tuple[threading.Thread, list[HTTPAnswer]]:
    answers = []
    thread = threading.Thread(target=lambda: answers.append(nsqd.http("GET", path)))
    thread.start()
    return thread, answers


def test_a_profile_shows_what_nsqd_does_while_it_does_it(nsqd):
    with Publisher(nsqd) as publisher:
        thread, answers = in_background(nsqd, "/debug/pprof/profile?seconds=2")
        wait_until(
            lambda: "stacks.Profiler.profile" in page(nsqd, "/debug/greenlets"), what="the profile to begin"
        )
        second = nsqd.http("GET", "/debug/pprof/profile?seconds=1")
        before = publisher.batches
        thread.join()
        assert publisher.batches > before
    assert second.refusal == "409 PROFILE_UNDER_WAY"
    lines = answers[0].text.splitlines()
    assert all(re.fullmatch(r"\S+ \d+", line) for line in lines)
    if not version_string("nsqd").endswith("-compiled)"):  # compiled code has no frames
        assert any("nsqd_py.tcp.connection.ClientConnection." in line for line in lines)
    assert page(nsqd, "/debug/pprof/profile?seconds=1") == ""  # nothing to do any more
