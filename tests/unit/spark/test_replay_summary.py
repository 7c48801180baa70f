"""What spark-replay prints: its plan, its summary, its dry run, its report."""

from __future__ import annotations

import errno
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from nsq_spark.archive.splits import FileInfo, Format, Requested, Skipped
from nsq_spark.publisher import PublishCounts
from nsq_spark.replay.checkpoint.directory import open_checkpoint
from nsq_spark.replay.job import Destination, Job, Selection
from nsq_spark.replay.options import PROGRAM
from nsq_spark.replay.outcome import DryRun, Outcome, TopicCount
from nsq_spark.replay.output import summary
from nsq_spark.replay.output.resume import how_to_resume, words_to_repeat
from nsqd_py.settings.program import ToolError

SECOND_NS = 10**9
BASE_NS = 1_700_000_000 * SECOND_NS  # 2023-11-14T22:13:20Z
FILE = FileInfo("/archive/orders.log", 1_000_000, 0, Format.LINES, topic="orders")


def planned(directory: Path, *others: FileInfo, **parts: Any) -> str:
    job = Job(("/archive",), **{"destination": Destination(("127.0.0.1:4150",)), **parts})
    checkpoint = open_checkpoint(str(directory), job, [FILE, *others])
    checkpoint.close()
    return summary.plan_text(checkpoint, "local[2]")


def outcome(possible_duplicates: int = 0, **parts: Any) -> Outcome:
    counts = PublishCounts(1500, 150_000, possible_duplicates, {"orders": 1500})
    return Outcome(**{"counts": counts, "matched": 1500, "seconds": 3.0, **parts})


def test_a_plan_names_what_is_sent_and_how(tmp_path: Path) -> None:
    selection = Selection(Requested(frozenset(("b", "a\x1b")), "^c", BASE_NS), "a = 1")
    destination = Destination(("127.0.0.1:4150",), topic_map=(("b", "x"),), to_topic="y")
    assert planned(tmp_path, selection=selection, destination=destination).splitlines() == [
        "replay",
        "  archive    /archive",
        "  files      1 (1 lines)",
        "  bytes      1,000,000",
        "  topics     a\\x1b, b, /^c/",
        "  from       2023-11-14T22:13:20Z",
        "  to nsqd    127.0.0.1:4150",
        "  to topics  b as x, others as y",
        "  spark      local[2]",
    ]


def test_a_plan_does_not_hide_topics_that_only_messages_name(tmp_path: Path) -> None:
    other = FileInfo("/archive/all.jsonl", 1_000_000, 0, Format.JSONL)
    text = "  topics   orders; and all topics in 1 file of other formats"
    assert text in planned(tmp_path / "both", other).splitlines()
    assert "  topics   orders" in planned(tmp_path / "one").splitlines()
    selection = Selection(Requested(frozenset(("a",))))
    assert "  topics   a" in planned(tmp_path / "asked", other, selection=selection).splitlines()


@pytest.mark.parametrize(
    ("dedupe", "form", "warns"),
    [("id", Format.LINES, True), ("id", Format.JSONL, False), ("body", Format.LINES, False)],
)
def test_files_without_ids_are_named(dedupe: str, form: Format, warns: bool) -> None:
    job = Job(("/archive",), Selection(dedupe=dedupe))
    text = summary.dedupe_warning(job, [FileInfo("/archive/a", 1, 0, form)] * 2)
    assert text.startswith("2 files of lines have no ids") is warns


def test_the_summary_has_the_counts_and_what_went_wrong() -> None:
    assert (
        summary.summary(outcome())
        == "sent: matched 1,500, sent 1,500, failed 0, skipped 0, 150.0 kB, 3.00 s (500/s)"
    )
    found = outcome(7, damage={"/a\x1b": Skipped(2, 1500)}, before=1, errors=["no\nsqd"], is_failed=True)
    assert summary.summary(found).splitlines() == [
        "partly sent: matched 1,500, sent 1,500, failed 0, skipped 2, 150.0 kB, 3.00 s (500/s)",
        "  1 message had been sent by earlier runs",
        "  7 messages may have been sent twice",
        r"  damaged: /a\x1b: 2 records, 1.5 kB passed over",
        r"  error: no\nsqd",
    ]


def test_the_summary_says_that_the_number_of_duplicates_is_not_known() -> None:
    found = outcome(2500, unknown_duplicates="127.0.0.1:4151 does not answer")
    assert summary.summary(found).splitlines()[1:] == [
        "  up to 2,500 messages may have been sent twice, or none: how many is not known, since 127.0.0.1:4151 does not answer"
    ]


def test_the_summary_says_that_ids_are_those_of_different_messages() -> None:
    assert summary.summary(outcome(shared_ids=4000)).splitlines()[1:] == [
        "  4,000 ids are those of messages with different bodies, all of which were chosen: nsqds had the same --node-id"
    ]


# ---- commands that go on

WORDS = [
    "/archive dir",
    "--nsqd-tcp-address=127.0.0.1:4150",
    "--to-topic",
    "again",
    "--where=a = 1",
    "--checkpoint",
    "/checkpoint",
    "--yes",
    "--conf=spark.hadoop.fs.s3a.secret.key=***",
]


def test_a_command_that_goes_on_can_be_pasted() -> None:
    text = how_to_resume(outcome(is_stopped=True), "/checkpoint", WORDS)
    command = text.splitlines()[1]
    assert shlex.split(command) == ["spark-replay", *WORDS]
    assert text.endswith("with your secrets in place of ***; --flag=@FILE reads one from a file)")
    assert "***" not in how_to_resume(outcome(is_stopped=True), "/checkpoint", WORDS[:-1])


def test_the_command_for_refused_messages_sends_them_where_the_others_were_sent() -> None:
    found = outcome(refused=1, refused_file="/checkpoint/refused.jsonl")
    assert found.exit_code == 3
    text = how_to_resume(found, "/checkpoint", WORDS[:-1])
    assert shlex.split(text.splitlines()[-1]) == [
        "spark-replay",
        "/checkpoint/refused.jsonl",
        "--nsqd-tcp-address=127.0.0.1:4150",
        "--to-topic",
        "again",
        "--yes",
    ]


def test_the_command_for_refused_messages_has_what_a_config_file_says_of_sending(tmp_path: Path) -> None:
    config = tmp_path / "replay.toml"
    config.write_text(
        'nsqd_tcp_address = ["127.0.0.1:4150"]\ntopic = ["orders"]\nproducer_opt = ["auth_secret,hush"]\n'
    )
    given = ["/archive", f"--config={config}", "--to-topic=again", "--yes"]
    words = words_to_repeat(PROGRAM.read(given), given)
    found = outcome(refused=1, refused_file="refused.jsonl")
    assert shlex.split(how_to_resume(found, None, words).splitlines()[1]) == [
        "spark-replay",
        "refused.jsonl",
        "--to-topic=again",
        "--yes",
        "--nsqd-tcp-address=127.0.0.1:4150",
        "--producer-opt=auth_secret,***",
    ]


# ---- the dry run


def test_a_dry_run_shows_topics_times_and_messages() -> None:
    look = DryRun({"b": TopicCount(1, 10, BASE_NS, BASE_NS), "a": TopicCount(2, 20)}, first=["a b"])
    assert summary.dry_run_text(look).splitlines() == [
        "topic  messages  size  first                 last",
        "a             2  20 B  -                     -",
        "b             1  10 B  2023-11-14T22:13:20Z  2023-11-14T22:13:20Z",
        "",
        "1 of 3 messages:",
        "a b",
    ]
    assert summary.dry_run_text(DryRun()) == "nothing matches"


# ---- the report


def test_the_report_has_what_the_summary_has(tmp_path: Path) -> None:
    job = Job(("/archive",), Selection(Requested(start_ns=BASE_NS)), checkpoint="/checkpoint")
    found = outcome(1, damage={"/a": Skipped(2, 1500)}, is_stopped=True)
    path = tmp_path / "report.json"
    summary.write_report(str(path), summary.report_of(job, found, BASE_NS))
    report = json.loads(path.read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
    assert (report["status"], report["exit_status"], report["stopped"]) == ("partly sent", 3, True)
    assert [report[name] for name in ("matched", "sent", "failed", "skipped", "bytes", "seconds")] == [
        1500,
        1500,
        0,
        2,
        150_000,
        3.0,
    ]
    assert report["topics"] == {"orders": 1500} and report["possible_duplicates"] == 1
    assert report["damage"] == {"/a": {"records": 2, "size_bytes": 1500}}
    assert (report["start"], report["end"], report["checkpoint"]) == (
        "2023-11-14T22:13:20Z",
        None,
        "/checkpoint",
    )


def test_a_report_that_fails_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.json"
    summary.write_report(str(path), {"run": 1})

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(ToolError, match=r"report\.json cannot be written: No space left on device"):
        summary.write_report(str(path), {"run": 2})
    assert json.loads(path.read_text()) == {"run": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="gone/report.json cannot be written: No such file or directory"):
        summary.write_report(str(tmp_path / "gone" / "report.json"), {})


# ---- texts


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
    assert summary.time_text(time_ns) == text
