"""The log of a topic as its users see it: what is kept, reading it by number, channels that go back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, FileHeader, decode
from nsqd_py.protocol.batch import Batch
from tests.support.nsqd_process import HTTPAnswer, NsqdProcess, wait_until
from tests.support.sweeps import sample
from tests.support.wire import Message, bodies

pytestmark = pytest.mark.ours

FILE_BYTES = 20_000


@pytest.fixture
def nsqd(make_nsqd) -> NsqdProcess:
    nsqd = make_nsqd(f"--max-bytes-per-file={FILE_BYTES}", "--retention-time=kept*=1h")
    nsqd.create("kept", "c")
    return nsqd


def numbered(low: int, high: int) -> list[bytes]:
    return [b"%05d" % number * 20 for number in range(low, high)]


def publish(nsqd: NsqdProcess, topic: str, low: int, high: int) -> None:
    with nsqd.connect() as client:
        for start in range(low, high, 20):
            client.mpub(topic, numbered(start, min(start + 20, high)))


def consume(nsqd: NsqdProcess, topic: str, channel: str, count: int) -> list[Message]:
    """All that there is, which is so much."""
    nsqd.wait_for_channel(topic, channel, depth=count)
    messages = nsqd.consume(topic, channel, count)
    nsqd.wait_for_channel(topic, channel, depth=0, in_flight_count=0)
    return messages


def log_of(nsqd: NsqdProcess, topic: str) -> dict[str, Any]:
    return nsqd.http("GET", f"/topic/log?topic={topic}").json()


# ---- reading by number


def batches_in(file: bytes) -> Iterator[Batch]:
    position = FILE_HEADER_BYTES
    while position < len(file):
        batch, position = decode(file, position, FileHeader.decode(file).salt)
        yield batch


def read(nsqd: NsqdProcess, query: str) -> tuple[dict[str, int], list[tuple[int, bytes]]]:
    """The numbers in the headers, and the messages with theirs."""
    answer = nsqd.http("GET", f"/topic/read?topic=kept&{query}")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/octet-stream")
    numbers = {key: int(answer.headers[f"X-Nsq-{key}-Seq"]) for key in ("First", "Next", "End", "Earliest")}
    numbers["Damaged"] = int(answer.headers["X-Nsq-Damaged-Bytes"])
    header = FileHeader.decode(answer.body)
    messages = [
        (batch.first_seq + i, batch.message(i))
        for batch in batches_in(answer.body)
        for i in range(batch.count)
    ]
    assert header.salt == 0
    assert header.first_seq == (messages[0][0] if messages else numbers["Next"])
    return numbers, messages


def test_a_topic_is_read_to_its_end_and_on(nsqd):
    publish(nsqd, "kept", 0, 500)
    consume(nsqd, "kept", "c", 500)
    seq = 0
    seen = []
    while seq < 500:
        numbers, messages = read(nsqd, f"seq={seq}&max_bytes=5000")
        assert (numbers["First"], numbers["End"], numbers["Earliest"]) == (seq, 500, 0)
        assert numbers["Next"] == messages[-1][0] + 1
        seen += [body for number, body in messages if number >= seq]
        seq = numbers["Next"]
    assert seen == numbered(0, 500)
    assert read(nsqd, "seq=500") == ({"First": 500, "Next": 500, "End": 500, "Earliest": 0, "Damaged": 0}, [])
    publish(nsqd, "kept", 500, 520)
    numbers, messages = read(nsqd, "seq=500")
    assert (numbers["Next"], [body for _, body in messages]) == (520, numbered(500, 520))


def test_reading_from_a_time(nsqd):
    publish(nsqd, "kept", 0, 200)
    time = datetime.now(UTC).isoformat().replace("+", "%2B")
    publish(nsqd, "kept", 200, 300)
    assert read(nsqd, f"time={time}&max_bytes=1")[0]["First"] == 200
    assert read(nsqd, "time=earliest&max_bytes=1")[0]["First"] == 0
    assert read(nsqd, "time=latest") == (
        {"First": 300, "Next": 300, "End": 300, "Earliest": 0, "Damaged": 0},
        [],
    )


def ids_of(nsqd: NsqdProcess, topic: str = "kept") -> list[int]:
    """The ids of all messages, in the order of their numbers."""
    found = []
    seq = 0
    while True:
        answer = nsqd.http("GET", f"/topic/read?topic={topic}&seq={seq}&max_bytes=100000")
        read = [batch.base_id + index for batch in batches_in(answer.body) for index in range(batch.count)]
        if not read:
            return found
        found += read
        seq = int(answer.headers["X-Nsq-Next-Seq"])


def test_reading_behind_an_id(nsqd):
    """Of a log of several files, at any message, and between two publishes."""
    publish(nsqd, "kept", 0, 1000)
    consume(nsqd, "kept", "c", 1000)
    for _ in range(2):
        ids = ids_of(nsqd)
        assert len(list(nsqd.data_path.glob("kept.*.log"))) > 4 and len(ids) == 1000
        for seq in (0, 1, 19, 20, 21, 333, 500, 998, 999):
            answer = nsqd.http("GET", f"/topic/read?topic=kept&id={ids[seq] - 1:016x}&max_bytes=1")
            assert (int(answer.headers["X-Nsq-First-Seq"]), answer.headers["X-Nsq-Before-Id"]) == (
                seq,
                f"{ids[seq] - 1:016x}",
            )
            numbers, messages = read(nsqd, f"id={ids[seq]:016x}&max_bytes=1")
            assert numbers["First"] == seq + 1
            assert seq == 999 or seq + 1 in dict(messages)
        assert read(nsqd, f"id={0:016x}&max_bytes=1")[0]["First"] == 0
        assert read(nsqd, f"id={(ids[19] + ids[20]) // 2:016x}&max_bytes=1")[0]["First"] == 20
        answer = nsqd.http("GET", f"/topic/read?topic=kept&id={ids[-1]:016x}")
        assert answer.headers["X-Nsq-Before-Id"] == answer.headers["X-Nsq-End-Id"] == f"{ids[-1]:016x}"
        assert read(nsqd, f"id={2**63 - 1:016x}")[0]["First"] == 1000
        nsqd.restart()


def test_what_is_not_kept_is_passed_over(nsqd):
    nsqd.create("gone", "c")
    publish(nsqd, "gone", 0, 20)
    (first_id, *_) = ids_of(nsqd, "gone")
    publish(nsqd, "gone", 20, 500)
    ids = ids_of(nsqd, "gone")
    consume(nsqd, "gone", "c", 500)
    wait_until(lambda: log_of(nsqd, "gone")["earliest_seq"] > 20, what="files to go")

    def begins_at_the_earliest() -> HTTPAnswer | None:
        """A file may go between the two numbers of an answer."""
        answer = nsqd.http("GET", f"/topic/read?topic=gone&id={first_id:016x}")
        is_earliest = answer.headers["X-Nsq-First-Seq"] == answer.headers["X-Nsq-Earliest-Seq"]
        return answer if is_earliest else None

    by_id = wait_until(begins_at_the_earliest, what="an answer from the earliest message on")
    assert int(by_id.headers["X-Nsq-Before-Id"], 16) == ids_of(nsqd, "gone")[0] - 1
    dropped = int(by_id.headers["X-Nsq-Earliest-Seq"])
    assert int(by_id.headers["X-Nsq-Earliest-Id"], 16) == ids[dropped - 1]
    by_number = nsqd.http("GET", "/topic/read?topic=gone&seq=3")
    first = int(by_number.headers["X-Nsq-First-Seq"])
    assert 20 < first == int(by_number.headers["X-Nsq-Earliest-Seq"])
    assert FileHeader.decode(by_number.body).first_seq == first


def test_a_topic_of_dead_letters_is_not_read_by_id(nsqd):
    """They keep their ids when they are moved, so that these do not rise."""
    nsqd.create("kept.dead", "c")
    assert (
        nsqd.http("GET", "/topic/read?topic=kept.dead&id=0000000000000001").refusal == "400 IDS_DO_NOT_RISE"
    )
    headers = nsqd.http("GET", "/topic/read?topic=kept.dead&seq=0").headers
    assert "X-Nsq-Epoch" in headers and "X-Nsq-Before-Id" not in headers and "X-Nsq-End-Id" not in headers


def damage(nsqd: NsqdProcess, number: int) -> None:
    """Flip a bit of the message with this number in its record, in the running nsqd's log."""
    body = numbered(number, number + 1)[0]
    for path in nsqd.data_path.glob("kept.*.log"):
        data = path.read_bytes()
        if (offset := data.find(body)) >= 0:
            with path.open("r+b") as file:
                file.seek(offset)
                file.write(bytes([data[offset] ^ 1]))
            return
    raise AssertionError(f"no file has the message {number}")


@pytest.mark.parametrize("number", sample(250, 0, 499))
def test_damage_is_passed_over_counted_and_said(make_nsqd, number):
    nsqd = make_nsqd(
        f"--max-bytes-per-file={FILE_BYTES}",
        "--retention-time=kept*=1h",
        "--scrub-rate=0",
        "--mem-queue-size=0",
    )
    nsqd.create("kept", "c")
    publish(nsqd, "kept", 0, 500)
    consume(nsqd, "kept", "c", 500)
    nsqd.restart()
    damage(nsqd, number)
    whole = read(nsqd, f"seq={(number + 100) % 500}&max_bytes=1")[0]
    assert whole["Damaged"] == 0
    seq = damaged_bytes = 0
    seen = []
    while seq < 500:
        numbers, messages = read(nsqd, f"seq={seq}&max_bytes=5000")
        damaged_bytes += numbers["Damaged"]
        assert numbers["Next"] > seq
        seen += [body for at, body in messages if at >= seq]
        seq = numbers["Next"]
    low = number // 20 * 20
    assert seen == numbered(0, low) + numbered(low + 20, 500), "the messages of one record are missing"
    record_bytes = RECORD_HEADER_BYTES + 20 * (4 + 100)
    assert damaged_bytes == record_bytes
    wait_until(
        lambda: nsqd.topic_stats("kept")["damaged_bytes"] == record_bytes,
        what="the damage to be counted once",
    )
    assert "damaged bytes" in nsqd.log_text()


def test_the_epoch_says_which_log_it_is(nsqd):
    def epoch():
        return nsqd.http("GET", "/topic/read?topic=kept&seq=0").headers["X-Nsq-Epoch"]

    nsqd.create("kept", "c")
    first = epoch()
    nsqd.restart(clean=False)  # at once: who has read it may remember it
    assert epoch() == first
    nsqd.post("/topic/delete?topic=kept")
    nsqd.create("kept", "c")
    assert epoch() != first


def test_how_far_the_log_of_a_deleted_topic_went(nsqd):
    def headers():
        return nsqd.http("GET", "/topic/read?topic=kept&seq=0").headers

    expected = []
    for count in 30, 0, 7:
        nsqd.create("kept", "c")
        publish(nsqd, "kept", 0, count)
        assert headers().get("X-Nsq-Ended", "") == ",".join(expected)
        if count:  # of an empty log, nothing can be missing
            expected.append(f"{headers()['X-Nsq-Epoch']}:{count}")
        nsqd.post("/topic/delete?topic=kept")
        assert headers()["X-Nsq-Ended"] == ",".join(expected)
    nsqd.restart(clean=False)  # at once: who has read it may remember it
    refused = nsqd.http("GET", "/topic/read?topic=kept&seq=0")
    assert (refused.refusal, refused.headers["X-Nsq-Ended"]) == ("404 TOPIC_NOT_FOUND", ",".join(expected))
    nsqd.create("kept", "c")
    assert headers()["X-Nsq-Ended"] == ",".join(expected)
    nsqd.restart(clean=False)
    assert headers()["X-Nsq-Ended"] == ",".join(expected)


REFUSED = {
    "GET /topic/read?topic=kept": "400 MISSING_ARG_SEQ",
    "GET /topic/read?topic=kept&seq=-1": "400 INVALID_ARG_SEQ",
    "GET /topic/read?topic=kept&seq=x": "400 INVALID_ARG_SEQ",
    "GET /topic/read?topic=kept&seq=0&max_bytes=0": "400 INVALID_ARG_MAX_BYTES",
    "GET /topic/read?topic=kept&time=soon": "400 INVALID_ARG_TIME",
    "GET /topic/read?topic=kept&id=12": "400 INVALID_ARG_ID",
    "GET /topic/read?topic=kept&id=000000000000000G": "400 INVALID_ARG_ID",
    "GET /topic/read?topic=none&seq=0": "404 TOPIC_NOT_FOUND",
    "GET /topic/read?topic=e%23ephemeral&seq=0": "400 TOPIC_IS_EPHEMERAL",
    "GET /topic/log?topic=e%23ephemeral": "400 TOPIC_IS_EPHEMERAL",
    "GET /topic/log": "400 MISSING_ARG_TOPIC",
    "POST /channel/seek?topic=kept&channel=c": "400 MISSING_ARG_TO",
    "POST /channel/seek?topic=kept&channel=c&to=soon": "400 INVALID_ARG_TO",
    "POST /channel/seek?topic=kept&channel=none&to=latest": "404 CHANNEL_NOT_FOUND",
    "POST /channel/seek?topic=e%23ephemeral&channel=c&to=latest": "400 TOPIC_IS_EPHEMERAL",
    "POST /channel/create?topic=kept&channel=d&from=soon": "400 INVALID_ARG_FROM",
    "POST /channel/create?topic=e%23ephemeral&channel=d&from=latest": "400 TOPIC_IS_EPHEMERAL",
}


def test_refused(nsqd):
    nsqd.create("e#ephemeral", "c")
    answers = {asked: nsqd.http(*asked.split(" ")).refusal for asked in REFUSED}
    assert answers == REFUSED


# ---- what is kept


def test_the_log_file_by_file(nsqd):
    before = datetime.now(UTC)
    publish(nsqd, "kept", 0, 500)
    log = log_of(nsqd, "kept")
    files = log["files"]
    assert (log["topic"], log["earliest_seq"], log["first_seq"]) == ("kept", 0, 0)
    assert (log["next_seq"], log["released_seq"]) == (500, 500)
    assert [file["name"] for file in files] == sorted(path.name for path in nsqd.data_path.glob("kept.*.log"))
    assert [file["first_seq"] for file in files[1:]] == [file["end_seq"] for file in files[:-1]]
    assert sum(file["message_count"] for file in files) == sum(file["live_count"] for file in files) == 500
    assert log["bytes"] == sum(file["bytes"] for file in files)
    since_ns = int(before.timestamp() * 1e9) - 1000
    assert all(since_ns <= file["first_timestamp"] <= file["last_timestamp"] for file in files)
    assert (log["sync_every"], log["sync_timeout_ns"], log["max_topic_bytes"]) == (2500, 2_000_000_000, 0)
    assert log["free_disk_bytes"] > 0
    assert log["retention_ns"] == 3600 * 10**9
    consume(nsqd, "kept", "c", 500)
    after = log_of(nsqd, "kept")["files"]
    assert [(file["message_count"], file["live_count"], file["sparse"]) for file in after] == [
        (file["message_count"], 0, False) for file in files
    ]


# ---- going back


def seek(nsqd: NsqdProcess, to: str) -> HTTPAnswer:
    return nsqd.post(f"/channel/seek?topic=kept&channel=c&to={quote(to)}")


@pytest.mark.parametrize("clean", [True, False])
def test_a_channel_goes_back_to_the_earliest_message(nsqd, clean):
    publish(nsqd, "kept", 0, 300)
    first_time = consume(nsqd, "kept", "c", 300)
    answer = seek(nsqd, "earliest").json()
    assert answer == {"seq": 0, "timestamp": first_time[0].timestamp_ns, "skipped": 0}
    nsqd.restart(clean=clean)
    again = consume(nsqd, "kept", "c", 300)
    assert again == first_time  # ids, timestamps, attempts
    assert bodies(again) == numbered(0, 300)


def test_a_channel_goes_to_a_time(nsqd):
    publish(nsqd, "kept", 0, 200)
    time = datetime.now(UTC)
    publish(nsqd, "kept", 200, 300)
    consume(nsqd, "kept", "c", 300)
    assert seek(nsqd, time.isoformat()).json()["seq"] == 200
    assert bodies(consume(nsqd, "kept", "c", 100)) == numbered(200, 300)
    assert seek(nsqd, (time + timedelta(hours=1)).isoformat()).json() == {
        "seq": 300,
        "timestamp": None,
        "skipped": 0,
    }
    nsqd.wait_for_channel("kept", "c", depth=0)


def test_a_new_channel_begins_where_it_is_told(nsqd):
    publish(nsqd, "kept", 0, 100)
    consume(nsqd, "kept", "c", 100)
    for name, start, depth in [
        ("a", "earliest", 100),
        ("b", "latest", 0),
        ("c", "earliest", 0),
        ("d", "-1h", 100),
    ]:
        nsqd.post(f"/channel/create?topic=kept&channel={name}&from={start}")  # c is there already
        nsqd.wait_for_channel("kept", name, depth=depth)


def test_retention_by_bytes_lets_go_of_the_oldest(make_nsqd):
    nsqd = make_nsqd(f"--max-bytes-per-file={FILE_BYTES}", "--retention-bytes=50000")
    nsqd.create("t", "c")
    publish(nsqd, "t", 0, 2000)
    consume(nsqd, "t", "c", 2000)

    wait_until(lambda: log_of(nsqd, "t")["bytes"] < 50_000 + 2 * FILE_BYTES, what="old files to go")
    assert log_of(nsqd, "t")["bytes"] >= 50_000
    answer = nsqd.post("/channel/seek?topic=t&channel=c&to=earliest").json()
    assert bodies(consume(nsqd, "t", "c", 2000 - answer["seq"])) == numbered(answer["seq"], 2000)


def test_retention_by_time_lets_go_without_traffic(make_nsqd):
    nsqd = make_nsqd(f"--max-bytes-per-file={FILE_BYTES}", "--retention-time=1s")
    nsqd.create("t", "c")
    publish(nsqd, "t", 0, 500)
    consume(nsqd, "t", "c", 500)
    wait_until(lambda: log_of(nsqd, "t")["earliest_seq"] > 0, what="old files to go")
