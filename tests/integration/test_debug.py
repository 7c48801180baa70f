"""/debug of running daemons, and that nobody waits for it."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.nsqd_process import HTTPAnswer, MakeNsqd, NsqdProcess, ServerProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.wire import OK, Client, dpub, mpub

pytestmark = pytest.mark.ours

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(params=["nsqd", "nsqlookupd"])
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> ServerProcess:
    process: ServerProcess
    process = NsqdProcess(tmp_path / "nsqd") if request.param == "nsqd" else NsqlookupdProcess(tmp_path / "nsqlookupd.log")
    request.addfinalizer(process.destroy)
    return process.start()


def page(daemon: ServerProcess, path: str, method: str = "GET") -> str:
    answer = daemon.http(method, path)
    assert answer.status == 200, answer
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    return answer.text


def test_the_pages_of_each_daemon(daemon: ServerProcess) -> None:
    """One start serves all of them."""
    paths = ["/debug/pprof/", "/debug/pprof"]
    path, similar = paths if isinstance(daemon, NsqdProcess) else paths[::-1]  # as in Go
    assert daemon.http("GET", similar).headers["Location"] == path
    linked = re.findall(r'href="(/[^"]+)"', page(daemon, path))
    assert len(linked) == len(set(linked)) >= 5
    for path in linked:
        if path != "/debug/gc":
            assert page(daemon, path.replace("profile", "profile?seconds=1"))

    assert re.match(r"greenlets: [1-9].*\n\n.*Daemon\.run ", page(daemon, "/debug/greenlets"), re.DOTALL)
    assert page(daemon, "/debug/pprof/goroutine?debug=2").count("waiting\n") >= 2
    assert "MainThread" in page(daemon, "/debug/pprof/threadcreate")
    assert re.search(r"^ +\d+ +\d+  str$", page(daemon, "/debug/pprof/heap"), re.MULTILINE)
    assert "--tcp-address=127.0.0.1:0" in page(daemon, "/debug/pprof/cmdline").split("\0")
    assert page(daemon, "/debug/pprof/symbol") == page(daemon, "/debug/pprof/symbol", "POST") == "num_symbols: 0\n"
    assert "/debug/greenlets" in page(daemon, "/debug/pprof/block")
    assert re.match(r"collected \d+ objects; resident \d{7,}", page(daemon, "/debug/freememory", "POST"))
    pauses = daemon.http("GET", "/debug/gc").json()
    assert pauses["frozen"] > 1000
    assert pauses["last_pauses"][0]["generation"] == 2


def test_what_is_refused(nsqd: NsqdProcess) -> None:
    for query, message in (
        ("seconds=0", "INVALID_ARG_SECONDS"),
        ("seconds=121", "INVALID_ARG_SECONDS"),
        ("seconds=soon", "INVALID_ARG_SECONDS"),
        ("seconds=1&format=pdf", "INVALID_ARG_FORMAT"),
    ):
        answer = nsqd.http("GET", f"/debug/pprof/profile?{query}")
        assert (answer.status, answer.json()) == (400, {"message": message})
    for rate, text in (
        ("", 'invalid block rate : strconv.Atoi: parsing "": invalid syntax'),
        ("x", 'invalid block rate : strconv.Atoi: parsing "x": invalid syntax'),
        ("9" * 20, f'invalid block rate : strconv.Atoi: parsing "{"9" * 20}": value out of range'),
        ("1", "Python has no profile of blocking; /debug/greenlets shows where greenlets wait"),
    ):
        answer = nsqd.http("PUT", f"/debug/setblockrate?rate={rate}")
        assert (answer.status, answer.text) == (400, text)


class Publisher(threading.Thread):
    """Publishes to a topic without end, and counts the batches."""

    def __init__(self, nsqd: NsqdProcess) -> None:
        super().__init__()
        self._nsqd = nsqd
        self._has_to_end = threading.Event()
        self.batches = 0

    def run(self) -> None:
        batch = mpub("busy#ephemeral", [b"x" * 100] * 50)
        with self._nsqd.connect() as client:
            while not self._has_to_end.is_set():
                assert client.ask(batch) == OK
                self.batches += 1

    def __enter__(self) -> Publisher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_to_end.set()
        self.join()


def in_background(nsqd: NsqdProcess, path: str) -> tuple[threading.Thread, list[HTTPAnswer]]:
    answers: list[HTTPAnswer] = []
    thread = threading.Thread(target=lambda: answers.append(nsqd.http("GET", path)))
    thread.start()
    return thread, answers


def test_a_profile_shows_what_nsqd_does_while_it_does_it(nsqd: NsqdProcess) -> None:
    with Publisher(nsqd) as publisher:
        thread, answers = in_background(nsqd, "/debug/pprof/profile?seconds=2")
        wait_until(lambda: "profile.Profiler.profile" in page(nsqd, "/debug/greenlets"), what="the profile to begin")
        second = nsqd.http("GET", "/debug/pprof/profile?seconds=1")
        before = publisher.batches
        thread.join()
        assert publisher.batches > before
    assert (second.status, second.json()) == (409, {"message": "PROFILE_UNDER_WAY"})
    assert answers[0].headers["Content-Type"] == "image/svg+xml"
    titles = [title.text or "" for title in ElementTree.fromstring(answers[0].text).iter(f"{SVG}title")]
    assert any(title.startswith("nsqd_py.tcp.connection.ClientConnection.") for title in titles)
    assert titles[0].endswith("100.0%")
    assert page(nsqd, "/debug/pprof/profile?seconds=1&format=folded") == ""  # nothing to do any more


def defer(client: Client, messages: int) -> None:
    """Publishes messages that stay, each an object."""
    for first in range(0, messages, 500):
        client.send(b"".join(dpub("later", 600_000, b"%d" % number) for number in range(first, first + 500)))
        assert [client.frame() for _ in range(500)] == [OK] * 500


def test_delivery_goes_on_while_objects_are_counted(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd("--mem-queue-size=100000")
    nsqd.create("later", "channel")
    with nsqd.connect() as client:
        defer(client, 10_000)
    texts: list[str] = []
    with Publisher(nsqd) as publisher:
        wait_until(lambda: publisher.batches)

        def serves_meanwhile() -> bool:
            """In each pause of the counting a batch or more; a busy machine may not let the publisher run in one."""
            before = publisher.batches
            texts.append(page(nsqd, "/debug/pprof/heap"))
            return publisher.batches - before >= 5

        wait_until(serves_meanwhile)
    text = texts[-1]
    counted = re.search(r"^ +(\d+) +(\d+)  bytes$", text, re.MULTILINE)
    assert counted is not None
    assert int(counted[2]) > 10_000 / 50  # a batch is one object, and each connection made some
