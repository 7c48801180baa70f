"""Publishing gets an error before the disk is full; all else goes on, and nsqd says why."""

from __future__ import annotations

import pytest

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from tests.support import wire
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.wire import ERROR, Frame

pytestmark = pytest.mark.ours

KIB = 1 << 10
BODY = b"x" * KIB


def publish_until_refused(nsqd: NsqdProcess, topic: str) -> int:
    """How many messages it took, until it took no more."""
    with nsqd.connect() as client:  # which the error closes
        for count in range(5000):
            answer = client.ask(wire.pub(topic, BODY))
            if answer != wire.OK:
                assert answer.kind == ERROR
                assert answer.data.startswith(b"E_PUB_FAILED PUB failed ")
                return count
    raise AssertionError("never refused")


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
def test_a_limit_is_reached_and_left_again(make_nsqd, flag, reason, tally):
    nsqd = make_nsqd(flag, "--max-bytes-per-file=65536")
    nsqd.create("t", "c")
    count = publish_until_refused(nsqd, "t")
    assert 270 < count < 280, "to the last KiB, but for the heads of files and records"
    for answer, verb in zip(refusals(nsqd), ("PUB", "MPUB", "DPUB"), strict=True):
        assert answer == Frame(ERROR, f"E_{verb}_FAILED {verb} failed {reason}".encode())
    refused = nsqd.http("POST", "/pub?topic=t", BODY)
    assert (refused.status, refused.json()) == (503, {"message": f"PUB_FAILED: {reason}"})
    health = f"NOK - disk: {reason}"
    # The limit of one topic is no trouble of the node.
    ping = health if flag.startswith("--max-disk-bytes") else "OK"
    for _ in range(5):
        assert (nsqd.stats()["health"], nsqd.http("GET", "/ping").text) == (health, ping)
        assert nsqd.http("POST", "/pub?topic=t", BODY).status == 503
    sizes = [path.stat().st_size for path in nsqd.data_path.glob("t.*.log")]
    assert sum(sizes) <= 300_000 + 65_536, "but for what is allocated ahead"
    assert nsqd.log_text().count("publishing is refused") == 1, "not for each message"
    with nsqd.consumer("t", "c", 100) as client:
        first = client.message()
        client.send(wire.req(first.id, 0))
        came = client.consume(count)
        assert len({message.id for message in came}) == count
    wait_until(nsqd.is_healthy, what="room again")
    nsqd.pub("t", b"after")
    tally(faults=1, acknowledged=count + 1)


def test_the_open_file_gives_way_when_most_of_it_is_finished(make_nsqd):
    """Files of the default size are larger than the limit: the only one is closed early, and shrinks."""
    nsqd = make_nsqd("--max-disk-bytes=2000000")
    nsqd.create("t", "c")
    count = publish_until_refused(nsqd, "t")
    with nsqd.consumer("t", "c", 2500) as client:
        messages = client.messages(count)
        kept = {message.id for message in messages[::10]}
        client.fin(*(message for message in messages if message.id not in kept))
        published = 0
        while published <= count // 2:  # space is freed in steps
            wait_until(nsqd.is_healthy, 150, "room again")  # files are not rewritten while the disk is slow
            published += publish_until_refused(nsqd, "t")
    nsqd.stop()  # else files are replaced while they are looked at
    sizes = [path.stat().st_size for path in nsqd.data_path.glob("t.*.log")]
    assert sum(sizes) <= 2_000_000 + len(sizes) * FILE_HEADER_BYTES
