"""What spark-replay says: its plan, its progress, its summary, its dry run, its report."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")
import numpy as np
import pyarrow as pa

from nsq_spark.archive.chunk import Chunk, Origin
from nsq_spark.archive.damage import Skipped
from nsq_spark.archive.formats import Format
from nsq_spark.archive.payload import Payload
from nsq_spark.archive.splits import FileInfo
from nsq_spark.archive.wanted import Wanted
from nsq_spark.replay.arguments import SparkWanted
from nsq_spark.replay.console import Bar, done_bytes, progress_text
from nsq_spark.replay.driver import Outcome, ReplayProgress
from nsq_spark.replay.dry_run import Look, TopicCount, bar, dry_run_text, histogram_text, row_width, topics_text
from nsq_spark.replay.figures import duration_text, rows_text, shown, time_text
from nsq_spark.replay.job import Destination, Job, Pacing, Safety, Selection
from nsq_spark.replay.planning import plan
from nsq_spark.replay.positions import Block, Marks
from nsq_spark.replay.progress import ReplayCounts
from nsq_spark.replay.summary import check_report, how_to_resume, plan_text, report_of, summary, write_report
from nsq_tools.cli import ToolError

SECOND_NS = 10**9
MINUTE_NS, HOUR_NS, DAY_NS = 60 * SECOND_NS, 3600 * SECOND_NS, 86_400 * SECOND_NS
BASE_NS = 1_700_000_000 * SECOND_NS  # 2023-11-14T22:13:20Z
LOCAL = SparkWanted("local[2]", {}, "")
FILE = FileInfo("/archive/orders.log", 1_000_000, 0, Format.LINES, topic="orders")


def planned(**parts: Any) -> str:
    job = Job(("/archive",), **{"destination": Destination(("127.0.0.1:4150",)), **parts})
    return plan_text(plan(job, [FILE], slots=2), LOCAL)


def row(text: str, name: str) -> str:
    """What a line of the plan says behind its name; empty where there is none."""
    found = [line.strip() for line in text.splitlines() if line.strip().startswith(f"{name} ")]
    return found[0].removeprefix(name).strip() if found else ""


def outcome(**parts: Any) -> Outcome:
    counts = ReplayCounts(read=2000, read_bytes=9000, matched=1500, sent=1500, sent_bytes=150_000)
    return Outcome(**{"counts": counts, "seconds": 3.0, **parts})


# ---- the plan


def test_a_plan_says_what_and_where_to() -> None:
    text = planned()
    assert text.startswith("replay\n")
    assert (row(text, "archive"), row(text, "topics"), row(text, "to nsqd")) == ("/archive", "orders", "127.0.0.1:4150")
    assert (row(text, "pace"), row(text, "spark")) == ("as fast as it goes", "local[2]")
    assert not any(row(text, name) for name in ("from", "where", "grep", "sample", "dedupe", "limit", "checkpoint"))


def test_a_plan_says_what_is_selected() -> None:
    wanted = Wanted(frozenset(["b", "a"]), "^c", BASE_NS, BASE_NS + SECOND_NS)
    text = planned(selection=Selection(wanted, "x > 1", "e", 0.015, 7, "id"))
    assert row(text, "topics") == "a, b, /^c/"
    assert (row(text, "from"), row(text, "until")) == ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z")
    assert (row(text, "where"), row(text, "grep"), row(text, "sample")) == ("x > 1", "e", "1.5 %")
    assert (row(text, "dedupe"), row(text, "limit")) == ("one of each id", "the first 7 messages")


def test_a_plan_says_how_it_is_sent() -> None:
    destination = Destination(lookupd_http_addresses=("h:4161",), topic_map=(("a", "x"),), to_topic="z", defer_s=90)
    text = planned(destination=destination, pacing=Pacing(5000, 10, by_time=True), safety=Safety(skip_damaged=True))
    assert row(text, "to nsqd") == "those that nsqlookupd h:4161 knows"
    assert (row(text, "to topics"), row(text, "deferred")) == ("a as x, others as z", "1:30")
    assert row(text, "pace") == ("with the gaps of the archive, 10 x as fast, at most 5,000 messages a second, in order of time")
    assert row(text, "damage") == "is passed over and counted"


def test_a_plan_cannot_steer_the_terminal() -> None:
    assert row(planned(selection=Selection(where="\x1b[2J")), "where") == r"\x1b[2J"


# ---- the progress


def at(sent: int, read_bytes: int, matched: int | None = None, phase: str = "") -> ReplayProgress:
    counts = ReplayCounts(read_bytes=read_bytes, matched=sent if matched is None else matched, sent=sent)
    return ReplayProgress(counts, 1000, phase)


def test_the_progress() -> None:
    assert progress_text(at(600, 200, phase="sending"), 300.4, 7.6) == ("sending  600 sent  300/s  200 B of 1.0 kB  0:08 left")
    assert progress_text(at(0, 0), 0) == "0 sent  0/s  0 B of 1.0 kB"
    assert progress_text(at(0, 1000, matched=10), 505, is_dry=True) == "10 found  505/s"


def test_what_waits_to_be_sent_is_not_done() -> None:
    assert done_bytes(at(100, 900, matched=400)) == 225
    assert done_bytes(at(400, 1001)) == 1000


def test_what_nsqd_refuses_is_told_at_once() -> None:
    progress = at(10, 500)
    progress.counts.failed = 3
    assert "3 failed" in progress_text(progress, 0)


@pytest.mark.parametrize("is_dry", [False, True])
def test_the_bar_shows_the_speed_of_messages(monkeypatch: pytest.MonkeyPatch, is_dry: bool) -> None:
    monkeypatch.setattr("nsq_spark.replay.console.is_terminal", lambda stream: True)
    monkeypatch.setenv("TERM", "xterm")
    bar = Bar("starting", is_dry=is_dry)
    times = iter(range(100))
    monkeypatch.setattr(bar._bar, "get_time", lambda: float(next(times)))
    for number in range(1, 5):
        bar(at(100 * number, 10 * number))
    row = bar._bar.tasks[0]
    assert (row.completed, row.total) == (40, 1000)
    what = "found" if is_dry else "sent"
    assert re.search(rf"400 {what}  [1-9]\d*/s  40 B of 1.0 kB  [1-9]\d*:\d\d left", row.description)


# ---- the summary


def test_the_summary_has_all_figures() -> None:
    assert summary(outcome()) == ("sent: read 2,000, matched 1,500, sent 1,500, failed 0, skipped 0, 150.0 kB, 3.00 s (500/s)")


def test_the_summary_says_what_went_wrong() -> None:
    found = outcome(damage={"/a\x1b": Skipped(2, 1500)}, possible_duplicates=7, before=1, errors=["no\nsqd"], is_failed=True)
    assert summary(found).splitlines() == [
        "partly sent: read 2,000, matched 1,500, sent 1,500, failed 0, skipped 2, 150.0 kB, 3.00 s (500/s)",
        "  1 message had been sent by earlier runs",
        "  7 messages may have been sent twice",
        r"  damaged: /a\x1b: 2 records, 1.5 kB passed over",
        r"  error: no\nsqd",
    ]


def test_how_to_resume() -> None:
    command = "spark-replay /a"
    stopped = outcome(is_stopped=True)
    assert how_to_resume(outcome(), "/checkpoint", command) == ""
    assert how_to_resume(stopped, "/checkpoint", command).endswith(f"\n  {command}")
    assert "would send these 1,500 messages again" in how_to_resume(stopped, None, command)
    assert how_to_resume(Outcome(is_stopped=True), None, command) == ""


# ---- the dry run


def test_topics_have_a_row_each_and_one_for_all() -> None:
    text = topics_text({"b": TopicCount(1, 10, BASE_NS, BASE_NS), "a": TopicCount(2, 20, None, None)})
    assert text.splitlines() == [
        "topic  messages  size  first                 last",
        "a             2  20 B  -                     -",
        "b             1  10 B  2023-11-14T22:13:20Z  2023-11-14T22:13:20Z",
        "all           3  30 B  2023-11-14T22:13:20Z  2023-11-14T22:13:20Z",
    ]


def test_a_histogram_shows_empty_stretches_too() -> None:
    assert histogram_text({0: 4, 2: 1}, SECOND_NS).splitlines() == [
        "messages in each 1s",
        "1970-01-01T00:00:00Z  4  ████████████████████████████████████████",
        "1970-01-01T00:00:01Z  0",
        "1970-01-01T00:00:02Z  1  ██████████",
    ]
    assert histogram_text({}, SECOND_NS) == ""


@pytest.mark.parametrize(
    ("last_ns", "bucket_ns", "width_ns"),
    [
        (0, SECOND_NS, SECOND_NS),
        (23 * SECOND_NS, SECOND_NS, SECOND_NS),
        (24 * SECOND_NS, SECOND_NS, 2 * SECOND_NS),
        (HOUR_NS, SECOND_NS, 5 * MINUTE_NS),
        (DAY_NS - 1, MINUTE_NS, HOUR_NS),
        (365 * DAY_NS, HOUR_NS, 28 * DAY_NS),
        (10_000 * DAY_NS, DAY_NS, 417 * DAY_NS),
    ],
)
def test_the_stretches_fit_on_a_screen(last_ns: int, bucket_ns: int, width_ns: int) -> None:
    assert row_width(0, last_ns, bucket_ns) == width_ns


@pytest.mark.parametrize(("part", "cells"), [(1, "█" * 40), (0.5, "█" * 20), (1 / 320, "▏"), (1e-9, "▏"), (0, "")])
def test_a_bar(part: float, cells: str) -> None:
    assert bar(part) == cells


def test_messages_cannot_steer_the_terminal() -> None:
    evil = "\x1b[2J\u202e\r\n"
    look = Look()
    body = pa.array([evil.encode() + b"\xff" + 500 * b" "], pa.binary())
    chunk = Chunk(Origin(evil, None, ""), np.zeros(1, np.int64), Payload.of_array(body), raw_ids=pa.array([evil]))
    look.take(Block(chunk, Marks(0, 0, chunk.positions)))
    text = dry_run_text(look, outcome().counts)
    assert not set(text) & set(evil.replace("[2J", "").replace("\n", ""))
    assert r"- \x1b[2J\u202e\x0d\n \x1b[2J\u202e\x0d\n \x1b[2J\u202e\x0d\n\xff" in text
    assert "... (510 B)" in text


def test_a_dry_run_that_finds_nothing_says_so() -> None:
    assert dry_run_text(Look(), outcome().counts) == "nothing matches, of 2,000 messages that were read"


# ---- the report


def test_the_report_has_what_the_summary_has(tmp_path: Path) -> None:
    job = Job(("/archive",), Selection(Wanted(start_ns=BASE_NS)), safety=Safety("/checkpoint"))
    found = outcome(damage={"/a": Skipped(2, 1500)}, topics={"orders": 1500}, is_stopped=True, possible_duplicates=1)
    path = tmp_path / "report.json"
    write_report(str(path), report_of(job, found, BASE_NS))
    report = json.loads(path.read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert (report["status"], report["exit_status"], report["stopped"]) == ("partly sent", 3, True)
    assert [report[name] for name in ("read", "matched", "sent", "failed", "skipped", "bytes", "seconds")] == [
        2000,
        1500,
        1500,
        0,
        2,
        150_000,
        3.0,
    ]
    assert report["topics"] == {"orders": 1500} and report["possible_duplicates"] == 1
    assert report["damage"] == {"/a": {"records": 2, "size_bytes": 1500}}
    assert (report["start"], report["end"], report["checkpoint"]) == ("2023-11-14T22:13:20Z", None, "/checkpoint")


def test_the_report_of_a_dry_run_has_what_was_found() -> None:
    look = Look(topics={"a": TopicCount(3, 30, BASE_NS, BASE_NS)}, buckets={1: 3}, bucket_ns=MINUTE_NS)
    report = report_of(Job(("/archive",)), Outcome(look=look), BASE_NS)
    assert (report["status"], report["sent"]) == ("dry run", 0)
    assert report["found"]["topics"]["a"]["count"] == 3
    assert report["found"]["histogram"] == [["1970-01-01T00:01:00Z", 3]]


def test_a_report_goes_through_a_pipe_and_a_link_and_replaces_neither(tmp_path: Path) -> None:
    """/dev/null and /dev/stdout are such paths."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for name in ("pipe", "link"):
        check_report(str(tmp_path / name))
        write_report(str(tmp_path / name), {"a": 1})
    assert json.loads(os.read(reader, 100)) == json.loads((tmp_path / "file").read_text()) == {"a": 1}
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "pipe"]


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="gone/report.json cannot be written: No such file or directory"):
        write_report(str(tmp_path / "gone" / "report.json"), {})


# ---- figures


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (BASE_NS + 120_000_000, "2023-11-14T22:13:20.120Z"),
        (BASE_NS + 1, "2023-11-14T22:13:20.000000001Z"),
        (2**63 - 1, "2262-04-11T23:47:16.854775807Z"),
    ],
)
def test_a_time(time_ns: int, text: str) -> None:
    assert time_text(time_ns) == text


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (754, "12:34"), (3723, "1:02:03")])
def test_a_duration(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_columns_stand_below_each_other() -> None:
    assert rows_text([("a", "1"), ("bb", "22")], right=(1,), indent="") == "a    1\nbb  22"
    assert shown(b"a\tb\x00") == r"a\tb\x00"
