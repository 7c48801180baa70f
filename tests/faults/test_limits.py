"""Publishing gets an error before the disk is full; all else goes on, and nsqd says why."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from nsqd_py.disk_space import LOOK_EVERY_NS
from tests.support import wire
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.tally import Tally
from tests.support.wire import ERROR, Frame

pytestmark = pytest.mark.ours

KIB = 1 << 10
BODY = b"x" * KIB


def publish_until_refused(nsqd: NsqdProcess, topic: str) -> int:
    """How many messages it took, until it takes no more: what a topic was granted and did not need is found again."""
    count, before, refused_s = 0, -1, 0.0
    while count != before or time.monotonic() - refused_s < 2 * LOOK_EVERY_NS / 1e9:
        if count != before:
            before, refused_s = count, time.monotonic()
        count += publish_until_an_error(nsqd, topic)
    return count


def publish_until_an_error(nsqd: NsqdProcess, topic: str) -> int:
    with nsqd.connect() as client:  # which the error closes
        for count in range(5000):
            answer = client.ask(wire.pub(topic, BODY))
            if answer != wire.OK:
                assert answer.kind == ERROR
                assert answer.data.startswith(b"E_PUB_FAILED PUB failed ")
                return count
    raise AssertionError("never refused")


def refused_and(nsqd: NsqdProcess, ask: Callable[[], str]) -> str:
    """What it says after a publish was refused: a look at the disk between may have found room for something small."""
    assert nsqd.http("POST", "/pub?topic=t", BODY).status == 503
    return ask()


def refusals(nsqd: NsqdProcess) -> list[Frame]:
    answers = []
    for command in (wire.pub("t", BODY), wire.mpub("t", [BODY, BODY]), wire.dpub("t", 1, BODY)):
        with nsqd.connect() as client:
            answers.append(client.ask(command))
    return answers


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--max-topic-bytes=t=300000", "the log of topic t has the 300000 bytes of --max-topic-bytes"),
        ("--max-disk-bytes=300000", "all logs together have the 300000 bytes of --max-disk-bytes"),
    ],
)
def test_a_limit_is_reached_and_left_again(make_nsqd: MakeNsqd, flag: str, reason: str, tally: Tally) -> None:
    nsqd = make_nsqd(flag, "--max-bytes-per-file=65536")
    nsqd.create("t", "c")
    count = publish_until_refused(nsqd, "t")
    assert 240 < count < 300
    for answer, verb in zip(refusals(nsqd), ("PUB", "MPUB", "DPUB"), strict=True):
        assert answer == Frame(ERROR, f"E_{verb}_FAILED {verb} failed {reason}".encode())
    refused = nsqd.http("POST", "/pub?topic=t", BODY)
    assert (refused.status, refused.json()) == (503, {"message": "EXITING"})
    health = f"NOK - disk: {reason}"
    wait_until(lambda: refused_and(nsqd, lambda: nsqd.stats()["health"]) == health, what="the health in /stats")
    wait_until(lambda: refused_and(nsqd, lambda: nsqd.http("GET", "/ping").text) == health, what="that of /ping")
    sizes = [path.stat().st_size for path in nsqd.data_path.glob("t.*.log")]
    assert sum(sizes) <= 300_000 + 65_536, "but for what is allocated ahead"
    assert 1 <= nsqd.log_text().count("publishing is refused") < 10, "not for each message"
    with nsqd.connect() as client:
        client.sub("t", "c", rdy_count=100)
        first = client.message()
        client.send(wire.req(first.id, 0))
        came = client.consume(count)
        assert len({message.id for message in came}) == count
    wait_until(nsqd.is_healthy, what="room again")
    with nsqd.connect() as client:
        client.pub("t", b"after")
    tally(faults=1, acknowledged=count + 1)


def test_the_reserve(make_nsqd: MakeNsqd) -> None:
    nsqd = make_nsqd(f"--min-free-disk-bytes={1 << 60}")
    nsqd.create("t", "c")
    reason = f"no more than the {1 << 60} bytes of --min-free-disk-bytes are free"
    assert refusals(nsqd)[0] == Frame(ERROR, f"E_PUB_FAILED PUB failed {reason}".encode())
    assert nsqd.http("GET", "/ping").text == f"NOK - disk: {reason}"
    with nsqd.connect() as client:  # what is in memory only needs no disk
        client.pub("t#ephemeral", b"x")
    nsqd.post("/channel/pause?topic=t&channel=c")
