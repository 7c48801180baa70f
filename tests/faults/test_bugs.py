"""A bug of nsqd at each of its doors: the client gets one sentence with a number, the log the same number and a traceback."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support.disk_calls import SYNCS, WRITES
from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.nsqd_process import wait_until
from tests.support.wire import Closed, dpub, mpub, pub, sub

pytestmark = pytest.mark.ours

SENTENCE = r"internal error ([0-9a-f]{6}), see the server's log"
LARGE = bytes(1_000_000)  # a thread writes it


def over_tcp(command: bytes) -> Callable[[FaultyNsqd], str]:
    def ask(nsqd: FaultyNsqd) -> str:
        with nsqd.connect() as client:
            return client.ask(command).data.decode()

    return ask


def over_http(path: str, body: bytes) -> Callable[[FaultyNsqd], str]:
    def ask(nsqd: FaultyNsqd) -> str:
        answer = nsqd.http("POST", path, body)
        return f"{answer.status} {answer.json()['message']}"

    return ask


# How a client publishes, and how the error begins that it gets.
PUBLISHES = {
    "PUB": (over_tcp(pub("t", b"1")), "E_PUB_FAILED PUB failed "),
    "large": (over_tcp(pub("t", LARGE)), "E_PUB_FAILED PUB failed "),
    "MPUB": (over_tcp(mpub("t", [b"1", b"2"])), "E_MPUB_FAILED MPUB failed "),
    "DPUB": (over_tcp(dpub("t", 1000, b"1")), "E_DPUB_FAILED DPUB failed "),
    "/pub": (over_http("/pub?topic=t", b"1"), "503 PUB_FAILED: "),
    "/mpub": (over_http("/mpub?topic=t", b"1\n2"), "503 PUB_FAILED: "),
}


def check(nsqd: FaultyNsqd, answer: str, begins: str, bug: str) -> None:
    found = re.fullmatch(re.escape(begins) + SENTENCE, answer)
    assert found, answer
    line = wait_until(
        lambda: re.search(rf"ERROR: internal error {found[1]}: (.*)\n((.+\n)+)", nsqd.log_text()),
        what="the line",
    )
    assert bug in line[1]
    assert "Traceback (most recent call last)" in line[2]


def has(nsqd: FaultyNsqd, *calls: str, path: str = "t.*.log") -> None:
    nsqd.set_rules(*({"call": call, "path": path, "bug": "IndexError"} for call in calls))


@pytest.mark.parametrize("calls", [WRITES, SYNCS], ids=["write", "sync"])
def test_a_bug_in_a_write(make_faulty, calls):
    nsqd = make_faulty(f"--sync-every={1 if calls == SYNCS else 2500}")
    nsqd.create("t", "c")
    for ask, begins in PUBLISHES.values():
        has(nsqd, *calls)
        check(nsqd, ask(nsqd), begins, "IndexError")
        nsqd.set_rules()
        wait_until(lambda: over_tcp(pub("t", b"after"))(nsqd) == "OK", what="a publish after the bug")


def test_a_bug_in_a_handler(make_faulty):
    nsqd = make_faulty()
    nsqd.create("t")
    has(nsqd, "open", path="t:c.cursor*")
    answer = over_http("/channel/create?topic=t&channel=c", b"")(nsqd)
    check(nsqd, answer, "500 INTERNAL_ERROR: ", "IndexError")
    with nsqd.connect() as client, pytest.raises(Closed):  # no words at all
        client.send(sub("t", "c"))
        client.frame()
    wait_until(
        lambda: len(re.findall(r"internal error [0-9a-f]{6}: .* - client", nsqd.log_text())) == 1,
        what="the line",
    )


def test_a_bug_that_clients_cause_many_times_a_second_fills_no_log(make_faulty):
    nsqd = make_faulty()
    nsqd.create("t", "c")
    has(nsqd, *WRITES)
    answers = {over_tcp(pub("t", b"1"))(nsqd) for _ in range(200)}
    assert len(answers) == 1, "one bug has one number"
    assert 0 < nsqd.log_text().count("ERROR: internal error") < 100
