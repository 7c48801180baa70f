"""Log files and positions that somebody removed or cut: between two lives of nsqd, and while it runs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from nsq_apps.nsqd import main
from nsqd_py.diskqueue.journals.journal import read_journal
from nsqd_py.diskqueue.journals.ranges import SeqRanges
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from nsqd_py.runtime.private_files import lock_directory
from tests.support.disk_calls import WRITES
from tests.support.ledger import compare
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.sweeps import sampled
from tests.support.wire import Closed, bodies, fin, rdy

pytestmark = pytest.mark.ours

FLAGS = ("--max-bytes-per-file=20000", "--sync-timeout=50ms")
BATCH, BATCHES = 20, 20
BODY_BYTES = 96
RECORD_BYTES = RECORD_HEADER_BYTES + BATCH * (4 + BODY_BYTES)
PER_FILE = BATCH * ((20_000 - FILE_HEADER_BYTES) // RECORD_BYTES)
ALL = BATCH * BATCHES
FINISHED = 10
SLOW_S = 0.4


@pytest.fixture
def nsqd(tmp_path) -> Iterator[NsqdProcess]:
    """With the topic `t`, the channels `all` and `some`, which finished ten messages, and three log files."""
    with NsqdProcess(tmp_path / "data", *FLAGS).start() as nsqd:
        nsqd.create("t", "all", "some")
        publish(nsqd, 0, ALL)
        finish_of_some(nsqd, FINISHED)
        yield nsqd


def publish(nsqd: NsqdProcess, low: int, high: int) -> None:
    nsqd.publish("t", [b"%0*d" % (BODY_BYTES, number) for number in range(low, high)], BATCH)


def finish_of_some(nsqd: NsqdProcess, count: int) -> None:
    """Finish the next messages of the channel, and leave nothing in flight."""
    with nsqd.consumer("t", "some", count) as client:
        messages = client.messages(count)
        client.send(rdy(0), *(fin(message.id) for message in messages))
        client.round_trip()


def consumed(nsqd: NsqdProcess, channel: str, count: int) -> list[int]:
    """The numbers of `count` messages of a channel, which are all that it has."""
    with nsqd.consumer("t", channel, ALL) as client:
        numbers = sorted(int(body) for body in bodies(client.consume(count)))
        client.expect_silence(0.1)
    return numbers


def log_files(nsqd: NsqdProcess) -> list[Path]:
    return sorted(nsqd.data_path.glob("t.*.log"))


def topic_metrics(nsqd: NsqdProcess) -> dict[str, Any]:
    return nsqd.topic_stats("t")


def channel_metrics(nsqd: NsqdProcess, name: str) -> dict[str, Any]:
    return nsqd.channel_stats("t", name)


@pytest.fixture
def check(capsys) -> Callable[..., tuple[int, dict[str, Any]]]:
    """`check(directory, *flags)`: the status and the report of `--check-data`."""

    def run(directory: Path, *flags: str) -> tuple[int, dict[str, Any]]:
        status = main((f"--check-data={directory}", "--log-format=json", *flags))
        return status, json.loads(capsys.readouterr().out)

    return run


Check = Callable[..., tuple[int, dict[str, Any]]]


def gone(report: dict[str, Any]) -> list[str]:
    return [finding["file"] for finding in report["findings"] if finding["trouble"] == "is gone"]


# ---- between two lives


@pytest.mark.parametrize(
    ("place", "is_clean"), sampled(product((0, 1, 2), (True, False)), (0, True), (1, False), (2, True))
)
def test_a_file_that_is_gone_is_damage(nsqd, check, place, is_clean, tally):
    if is_clean:
        nsqd.stop()
    else:
        wait_until(lambda: not unsaved(nsqd), what="the position to be written")
        nsqd.kill()
    assert check(nsqd.data_path)[0] == 0
    files = log_files(nsqd)
    assert len(files) == 3
    low, high = place * PER_FILE, min((place + 1) * PER_FILE, ALL)
    removed = files[place].read_bytes()
    files[place].unlink()
    if place == 2 and not is_clean:
        return  # where the log ended when nsqd was killed is not known
    status, report = check(nsqd.data_path)
    assert (status, gone(report)) == (1, [files[place].name])
    (detail,) = (finding["detail"] for finding in report["findings"])
    assert f"{high - low} messages" in detail

    nsqd.start()
    assert f"WARNING: TOPIC(t): {files[place].name} is gone" in nsqd.log_text()
    lost_of_some = high - max(low, FINISHED)
    assert topic_metrics(nsqd)["missing_count"] == high - low
    assert channel_metrics(nsqd, "all")["lost_count"] == high - low
    assert channel_metrics(nsqd, "some")["lost_count"] == lost_of_some
    metrics = nsqd.http("GET", "/metrics").text
    assert f'nsqd_log_missing_messages_total{{topic="t"}} {high - low}.0' in metrics
    assert f'nsqd_channel_lost_total{{channel="some",topic="t"}} {lost_of_some}.0' in metrics
    expected = [number for number in range(ALL) if not low <= number < high]
    came = consumed(nsqd, "all", len(expected))
    verdict = compare(map(b"%d".__mod__, expected), map(b"%d".__mod__, came)).require_sound()
    publish(nsqd, ALL, ALL + BATCH)
    assert consumed(nsqd, "all", BATCH) == list(range(ALL, ALL + BATCH))
    wait_until(
        lambda: not list(finished(nsqd, "all").gaps(ALL, ALL + BATCH)), what="the position to be written"
    )
    nsqd.restart(clean=is_clean)
    assert "is gone" in nsqd.log_text(), "lost is not finished"
    assert channel_metrics(nsqd, "all")["lost_count"] == high - low
    nsqd.stop()
    assert gone(check(nsqd.data_path)[1]) == [files[place].name]

    files[place].write_bytes(removed)
    assert check(nsqd.data_path)[0] == 0
    nsqd.start()
    assert "is gone" not in nsqd.log_text()
    assert consumed(nsqd, "all", high - low) == list(range(low, high)), "what comes back is delivered"
    tally(faults=1, **verdict.counts())


def test_whoever_empties_a_channel_accepts_what_it_lost(nsqd, check):
    nsqd.stop()
    log_files(nsqd)[1].unlink()
    nsqd.start()
    nsqd.post("/channel/empty?topic=t&channel=all")
    nsqd.post("/channel/seek?topic=t&channel=some&to=latest")
    nsqd.restart()
    assert "is gone" not in nsqd.log_text()
    assert "missing_count" not in topic_metrics(nsqd)
    nsqd.stop()
    assert check(nsqd.data_path)[0] == 0


def unsaved(nsqd: NsqdProcess, count: int = FINISHED) -> bool:
    """The journal of `some` does not say yet that so many are finished."""
    return finished(nsqd, "some").floor < count


def finished(nsqd: NsqdProcess, channel: str) -> SeqRanges:
    """What the journal of the channel says."""
    return read_journal((nsqd.data_path / f"t:{channel}.cursor").read_bytes()).saved.finished


def test_files_that_went_since_all_was_finished_are_none(nsqd, check):
    """Also when nsqd is killed right then: what is finished is written down before its file goes."""
    consumed(nsqd, "all", ALL)
    consumed(nsqd, "some", ALL - FINISHED)
    wait_until(lambda: len(log_files(nsqd)) == 1, what="the files to go")
    nsqd.kill()
    assert check(nsqd.data_path)[0] == 0
    nsqd.start()
    assert "is gone" not in nsqd.log_text()
    assert "missing_count" not in topic_metrics(nsqd)
    nsqd.restart()
    assert "missing_count" not in topic_metrics(nsqd)


@pytest.mark.parametrize("damage", ["cut", "flipped", "cut at a record", "header"])
def test_the_last_record_is_damaged_after_a_clean_stop(nsqd, check, damage):
    nsqd.stop()
    last = log_files(nsqd)[-1]
    data = bytearray(last.read_bytes())
    if damage == "flipped":
        data[-1] ^= 1
    elif damage == "header":
        data[-RECORD_BYTES] ^= 1
    else:
        del data[-(1 if damage == "cut" else RECORD_BYTES) :]
    last.write_bytes(data)
    status, report = check(nsqd.data_path)
    assert status == 1
    assert {(finding["file"], finding["trouble"]) for finding in report["findings"]} == {
        (last.name, "damaged records")
    }
    nsqd.start()
    text = nsqd.log_text()
    assert "damaged bytes at" in text
    assert "torn" not in text
    statistics = topic_metrics(nsqd)
    assert statistics["damaged_bytes"] == RECORD_BYTES
    assert statistics["missing_count"] == BATCH
    assert channel_metrics(nsqd, "all")["lost_count"] == BATCH
    assert consumed(nsqd, "all", ALL - BATCH) == list(range(ALL - BATCH))


def test_a_clean_stop_counts_for_one_start(nsqd, check):
    nsqd.restart()
    publish(nsqd, ALL, ALL + BATCH)
    nsqd.kill()
    last = log_files(nsqd)[-1]
    last.write_bytes(last.read_bytes().rstrip(b"\0")[:-1])
    assert check(nsqd.data_path)[0] == 0


# ---- while it runs


@pytest.mark.parametrize(
    ("place", "publishes", "sync_every"),
    sampled(product((0, -1), (True, False), (1, 2500)), (-1, True, 1), (0, False, 2500)),
)
def test_a_file_that_is_cut_while_nsqd_runs_is_reported(make_nsqd, place, publishes, sync_every):
    nsqd = make_nsqd(*FLAGS, f"--sync-every={sync_every}")
    nsqd.create("t", "all")
    publish(nsqd, 0, ALL)
    harmed = log_files(nsqd)[place]
    os.truncate(harmed, 3000)
    published = ALL
    while publishes and topic_metrics(nsqd).get("removed_files") != 1:
        with contextlib.suppress(Closed, AssertionError):  # the first one that a sync covers gets an error
            publish(nsqd, published, published + BATCH)
        published += BATCH
    wait_until(lambda: topic_metrics(nsqd).get("removed_files") == 1, what="it to be counted")
    assert 'nsqd_log_removed_files_total{topic="t"} 1.0' in nsqd.http("GET", "/metrics").text
    wait_until(lambda: nsqd.http("GET", "/ping").status == 200, what="the next sync")
    health = nsqd.http("GET", "/health?format=json").json()
    assert (health["status"], health["topics"][0]["topic_name"]) == ("degraded", "t")
    assert f"{harmed.name} was removed or cut" in health["topics"][0]["reason"]
    publish(nsqd, published, published + BATCH)
    assert nsqd.log_text().count(f"TOPIC(t): {harmed.name} was removed or cut while it was in use") == 1
    assert place == 0 or log_files(nsqd)[-1] != harmed, "nothing more is written to it"
    assert nsqd.consume("t", "all", ALL // 2), "what is in memory comes"
    nsqd.restart()
    assert "Traceback" not in nsqd.log_text()


def health(nsqd: NsqdProcess) -> str:
    return nsqd.http("GET", "/health?format=json").json()["status"]


def move(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


QUICK = ([0], Path.unlink, False), ([-1], move, True), ([0, 1, 2], Path.unlink, False)


@pytest.mark.parametrize(
    ("places", "harm", "is_clean"),
    sampled(product(([0], [-1], [0, 1, 2]), (Path.unlink, move), (True, False)), *QUICK),
)
def test_a_file_that_is_removed_while_nsqd_runs_is_written_back(nsqd, check, places, harm, is_clean):
    harmed = [log_files(nsqd)[place] for place in places]
    for path in harmed:
        harm(path)
    publish(nsqd, ALL, ALL + BATCH)
    wait_until(
        lambda: topic_metrics(nsqd).get("restored_files") == len(places), what="the files to be there again"
    )
    assert topic_metrics(nsqd)["removed_files"] == len(places)
    assert f'nsqd_log_restored_files_total{{topic="t"}} {len(places)}.0' in nsqd.http("GET", "/metrics").text
    wait_until(lambda: health(nsqd) == "ok", what="the next sync")
    publish(nsqd, ALL + BATCH, ALL + 2 * BATCH)
    nsqd.stop() if is_clean else nsqd.kill()
    assert "is written back: nothing is lost" in nsqd.log_text()
    assert check(nsqd.data_path)[0] == 0
    nsqd.start()
    assert "is gone" not in nsqd.log_text()
    assert consumed(nsqd, "all", ALL + 2 * BATCH) == list(range(ALL + 2 * BATCH))


@pytest.mark.parametrize("place", [0, -1], ids=["closed", "written to"])
def test_a_file_that_is_removed_right_before_a_stop_is_written_back(nsqd, check, place):
    log_files(nsqd)[place].unlink()
    nsqd.stop()
    assert check(nsqd.data_path)[0] == 0
    nsqd.start()
    assert consumed(nsqd, "all", ALL) == list(range(ALL))


def test_a_file_that_is_removed_right_before_a_stop_is_written_back_to_a_slow_disk(make_faulty, check):
    """Whose files the event loop does not look at."""
    nsqd = make_faulty(*FLAGS)
    nsqd.create("t", "all")
    publish(nsqd, 0, ALL)
    nsqd.set_rules(*({"call": call, "delay_s": SLOW_S} for call in WRITES))
    publish(nsqd, ALL, ALL + 2 * BATCH)
    nsqd.set_rules()
    log_files(nsqd)[0].unlink()
    nsqd.stop()
    assert "the disk is slow" in nsqd.log_text()
    assert check(nsqd.data_path)[0] == 0
    nsqd.start()
    assert consumed(nsqd, "all", ALL + 2 * BATCH) == list(range(ALL + 2 * BATCH))


@pytest.mark.parametrize("place", sampled([0, -1], 0))
def test_a_file_that_is_removed_is_written_back_while_the_disk_stays_slow(make_faulty, check, place):
    nsqd = make_faulty(*FLAGS)
    nsqd.create("t", "all")
    publish(nsqd, 0, ALL)
    nsqd.set_rules(*({"call": call, "delay_s": SLOW_S} for call in WRITES))
    log_files(nsqd)[place].unlink()
    sent = ALL

    def is_written_back():
        nonlocal sent
        publish(nsqd, sent, sent + BATCH)
        sent += BATCH
        return topic_metrics(nsqd).get("restored_files") == 1

    wait_until(is_written_back, 60, "the file to be there again")
    assert topic_metrics(nsqd)["removed_files"] == 1
    assert "the disk is slow" in nsqd.log_text()
    assert "NSQ: the disk is as fast" not in nsqd.log_text()
    nsqd.set_rules()
    nsqd.kill()
    assert check(nsqd.data_path)[0] == 0
    nsqd.start()
    assert consumed(nsqd, "all", sent) == list(range(sent))


def test_a_file_that_takes_the_name_of_another_one_is_set_aside(nsqd):
    removed = log_files(nsqd)[0]
    removed.unlink()
    removed.write_bytes(b"of another program")
    wait_until(lambda: topic_metrics(nsqd).get("removed_files") == 1, what="it to be counted")
    wait_until(lambda: topic_metrics(nsqd).get("restored_files") == 1, what="the file to be written again")
    assert removed.with_name(f"{removed.name}.damaged").read_bytes() == b"of another program"
    nsqd.restart(clean=False)
    assert consumed(nsqd, "all", ALL) == list(range(ALL))
    assert "missing_count" not in topic_metrics(nsqd)


def test_a_new_file_that_is_removed_before_it_has_a_message(nsqd, check):
    nsqd.post("/channel/delete?topic=t&channel=some")
    consumed(nsqd, "all", ALL)
    wait_until(lambda: len(log_files(nsqd)) == 1, what="the old files to go")
    log_files(nsqd)[0].unlink()
    wait_until(lambda: topic_metrics(nsqd).get("removed_files") == 1, what="it to be counted")
    publish(nsqd, ALL, ALL + BATCH)
    nsqd.kill()
    assert check(nsqd.data_path)[0] == 0
    nsqd.start()
    assert consumed(nsqd, "all", BATCH) == list(range(ALL, ALL + BATCH))


def test_a_position_that_is_removed_while_nsqd_runs_is_written_again(nsqd):
    cursor = nsqd.data_path / "t:some.cursor"
    cursor.unlink()
    finish_of_some(nsqd, 1)
    wait_until(
        lambda: cursor.exists() and not unsaved(nsqd, FINISHED + 1), what="the position to be there again"
    )
    nsqd.restart(clean=False)
    assert consumed(nsqd, "some", ALL - FINISHED - 1) == list(range(FINISHED + 1, ALL))


VERBS = ("delete", "pause", "unpause", "empty")


def test_a_data_path_that_is_replaced_while_nsqd_runs_has_one_nsqd(nsqd):
    """The locked directory is another one then."""

    def remove(number):  # at once: nsqd may be writing a file in it
        nsqd.data_path.rename(nsqd.data_path.with_name(f"removed{number}"))

    def replace():
        nsqd.data_path.mkdir()
        return lock_directory(nsqd.data_path)

    before = nsqd.topic_stats("t")
    remove(1)
    some = "topic=t&channel=some"
    for path in (
        "topic/create?topic=new",
        "channel/create?topic=t&channel=new",
        f"channel/seek?{some}&to=latest",
    ):
        assert nsqd.http("POST", f"/{path}").status == 500
    for path in (*(f"topic/{verb}?topic=t" for verb in VERBS), *(f"channel/{verb}?{some}" for verb in VERBS)):
        refused = nsqd.http("POST", f"/{path}")
        assert (refused.status, refused.text) == (
            500,
            '{"message":"INTERNAL_ERROR: the data path cannot be written to"}',
        )
    assert nsqd.topic_stats("t") == before, "a request that fails changes nothing"
    assert nsqd.http("GET", "/ping").status == 500
    os.close(replace())
    wait_until(lambda: "locked again" in nsqd.log_text(), what="nsqd to lock the new one")
    with pytest.raises(BlockingIOError):
        lock_directory(nsqd.data_path)
    remove(2)
    other = replace()
    assert nsqd.wait() == 1
    assert "is in use by another nsqd" in nsqd.log_text()
    assert not (nsqd.data_path / "nsqd.stop").exists()
    os.close(other)
