"""The data source and spark-replay on real clusters, into a real nsqd: all that was archived arrives, whatever is killed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from nsq_spark.session import zip_packages
from tests.support import spark_replay
from tests.support.archives import read_messages, splits_of
from tests.support.ledger import compare
from tests.support.network import free_ports, is_listening
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.spark_standalone import Standalone, standalone
from tests.support.tool_process import ToolProcess
from tests.support.wire import Message

LOCAL_CLUSTER = "--master=local-cluster[2,1,1024]"
MESSAGES, RATE = 20_000, 5_000
EARLY, LATE = 2_000, 10_000


pytestmark = [pytest.mark.usefixtures("java_home"), pytest.mark.xdist_group("clusters")]


@pytest.fixture(scope="module")
def cluster(java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A master, and two workers of one core each."""
    with standalone(tmp_path_factory.mktemp("standalone"), workers=2) as found:
        yield found


@pytest.fixture
def nsqd(make_nsqd: MakeNsqd) -> NsqdProcess:
    nsqd = make_nsqd()
    nsqd.create(spark_replay.TOPIC, spark_replay.CHANNEL)
    return nsqd


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """MESSAGES of them, in one file that two tasks share."""
    return spark_replay.write_archive(tmp_path / "orders.nsqf", MESSAGES)


# ---- sessions of `SparkSession.builder` alone


SCRIPT = """
import sys
from pyspark.sql import SparkSession
from nsq_spark import nsq_archive, register

spark = SparkSession.builder.getOrCreate()
register(spark)
archive, address = sys.argv[1:]
print("messages:", nsq_archive(spark, archive).count())
orders = spark.read.format("nsq").load(archive).select("body")
orders.write.format("nsq").mode("append").options(nsqdTcpAddress=address, topic="orders").save()
"""
QUIET = [
    f"--conf=spark.{name}"
    for name in ("ui.enabled=false", "driver.host=127.0.0.1", "driver.bindAddress=127.0.0.1")
]


@pytest.mark.slow  # `test_source_docs.py` has the cells of a notebook
@pytest.mark.parametrize("way", ["spark-submit", "connect"])
def test_a_script_on_two_workers(
    way: str,
    nsqd: NsqdProcess,
    archive: Path,
    tmp_path: Path,
    cluster: Standalone,
    spark_environment: dict[str, str],
) -> None:
    """Sent by spark-submit, or by a client of Spark Connect, which has no Java: the source reads and the sink writes."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    arguments = [str(script), str(archive), f"127.0.0.1:{nsqd.tcp_port}"]
    submit = [f"{cluster.home}/bin/spark-submit", f"--master={cluster.master}", *QUIET]
    submit.append(f"--py-files={zip_packages(tmp_path / 'ours.zip')}")
    if way == "spark-submit":
        done = run_to_end([*submit, *arguments], spark_environment)
    else:
        with connect_server(submit, tmp_path / "connect.log", spark_environment) as remote:
            environment = {**spark_environment, "SPARK_REMOTE": remote, "JAVA_HOME": "/missing"}
            done = run_to_end([sys.executable, *arguments], environment)
    assert done == f"messages: {MESSAGES}\n"
    compare(spark_replay.numbered(MESSAGES), spark_replay.copies(nsqd)).require_sound()


def run_to_end(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=spark_replay.DEADLINE_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def connect_server(submit: list[str], log_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """A server of Spark Connect as another program of the cluster; its address."""
    (port,) = free_ports(1)
    settings = [f"--conf=spark.connect.grpc.binding.{name}" for name in ("address=127.0.0.1", f"port={port}")]
    command = [
        *submit,
        *settings,
        "--class=org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]
    with (
        log_path.open("wb") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            wait_until(
                lambda: server.poll() is not None or is_listening(port),
                spark_replay.DEADLINE_S,
                "Spark Connect",
            )
            assert server.poll() is None, log_path.read_text("utf-8", "replace")
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.kill()


# ---- spark-replay


def kill_one_that_publishes(found: list[psutil.Process], nsqd: NsqdProcess) -> None:
    wait_until(lambda: spark_replay.publishing(found, nsqd), what="an executor that publishes")[0].kill()
    assert spark_replay.arrived(nsqd) < MESSAGES


@pytest.mark.slow
@pytest.mark.parametrize("has_checkpoint", [False, True], ids=["", "checkpoint"])
def test_a_killed_executor(nsqd: NsqdProcess, archive: Path, tmp_path: Path, has_checkpoint: bool) -> None:
    """Spark does its task again: all is sent, and what may be there twice is counted."""
    flags = [f"--checkpoint={tmp_path / 'checkpoint'}"] if has_checkpoint else []
    with spark_replay.Replay(nsqd, archive, tmp_path, LOCAL_CLUSTER, f"--rate={RATE}", *flags) as replay:
        spark_replay.wait_for_messages(nsqd, replay, EARLY)
        kill_one_that_publishes(spark_replay.executors(replay.pid), nsqd)
        assert replay.end() == 0, replay.log_text()
        report = replay.report()
    found = compare(
        spark_replay.numbered(MESSAGES), spark_replay.copies(nsqd), at_least_once=True
    ).require_sound()
    assert found.again <= report["possible_duplicates"]
    assert 0 < report["possible_duplicates"] <= MESSAGES
    assert report["sent"] == report["matched"] == MESSAGES and report["failed"] == 0
    assert report["topics"] == {spark_replay.TOPIC: MESSAGES}


@pytest.mark.slow
def test_a_killed_driver(nsqd: NsqdProcess, archive: Path, tmp_path: Path, cluster: Standalone) -> None:
    """The same command goes on; only slices that were not done come twice."""
    flags = (f"--master={cluster.master}", f"--rate={RATE}", f"--checkpoint={tmp_path / 'checkpoint'}")
    with spark_replay.Replay(nsqd, archive, tmp_path, *flags) as replay:
        spark_replay.wait_for_messages(nsqd, replay, LATE)
        replay.kill()
        assert spark_replay.arrived(nsqd) < MESSAGES
    with spark_replay.Replay(nsqd, archive, tmp_path, *flags) as replay:
        assert replay.end() == 0, replay.log_text()
        report = replay.report()
    found = compare(
        spark_replay.numbered(MESSAGES), spark_replay.copies(nsqd), at_least_once=True
    ).require_sound()
    assert report["sent_before"] + report["sent"] == MESSAGES
    assert 0 < found.again <= report["possible_duplicates"] <= 10 * found.again


@pytest.fixture
def nsqd_that_returns(tmp_path: Path) -> Iterator[NsqdProcess]:
    """To the same ports."""
    port = free_ports(1)[0]
    with NsqdProcess(tmp_path / "returns", ports=(port, port + 1)).start() as nsqd:
        nsqd.create(spark_replay.TOPIC, spark_replay.CHANNEL)
        yield nsqd


@pytest.mark.slow
def test_a_restarted_nsqd(nsqd_that_returns: NsqdProcess, archive: Path, tmp_path: Path) -> None:
    """It is killed in the middle, and what it did not answer for is sent again when it is back."""
    nsqd = nsqd_that_returns
    with spark_replay.Replay(nsqd, archive, tmp_path, "--master=local[2]", f"--rate={RATE}") as replay:
        spark_replay.wait_for_messages(nsqd, replay, EARLY)
        nsqd.restart(clean=False)
        assert replay.end() == 0, replay.log_text()
        report = replay.report()
    found = compare(
        spark_replay.numbered(MESSAGES), spark_replay.copies(nsqd), at_least_once=True
    ).require_sound()
    assert found.again == report["possible_duplicates"]
    assert report["sent"] == MESSAGES and report["failed"] == 0


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, int]:
    """MESSAGES in one file, and where the record of it begins that is damaged."""
    path = spark_replay.write_archive(tmp_path / "orders.nsqf", MESSAGES)
    return path, spark_replay.damage_record(path, 120)


@pytest.mark.slow
def test_damage_ends_it(nsqd: NsqdProcess, damaged: tuple[Path, int], tmp_path: Path) -> None:
    """With a word about which file, and where in it; what comes before that place is sent."""
    path, position = damaged
    with spark_replay.Replay(nsqd, path, tmp_path, "--master=local[1]") as replay:
        assert replay.end() == 3, replay.log_text()
        assert f"{path} is damaged at {position}: " in replay.log_text()
    before = spark_replay.numbered(MESSAGES)[: 120 * spark_replay.PER_RECORD]
    assert compare(before, spark_replay.copies(nsqd), at_least_once=True).of("lost") == []


@pytest.mark.slow
def test_a_footer_that_would_end_the_process_is_damage_too(nsqd: NsqdProcess, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    found = Path(__file__).parents[1] / "fuzz/found/archive_parquet-a-histogram-of-another-size"
    (archive / "orders.parquet").write_bytes(found.read_bytes())
    with spark_replay.Replay(nsqd, archive, tmp_path, "--master=local[1]") as replay:
        assert replay.end() == 1, replay.log_text()  # not 3: nothing was sent before it
        assert "orders.parquet is damaged at 0: rows 0 to 1 cannot be read" in replay.log_text()


@pytest.mark.slow
def test_damage_is_passed_over(nsqd: NsqdProcess, damaged: tuple[Path, int], tmp_path: Path) -> None:
    """If it may be, and is counted."""
    path, _ = damaged
    with spark_replay.Replay(nsqd, path, tmp_path, "--master=local[2]", "--skip-damaged") as replay:
        assert replay.end() == 0, replay.log_text()
        report = replay.report()
    bodies = spark_replay.numbered(MESSAGES)
    del bodies[120 * spark_replay.PER_RECORD : 121 * spark_replay.PER_RECORD]
    compare(bodies, spark_replay.copies(nsqd)).require_sound()
    assert report["damage"][str(path)]["records"] == report["skipped"] == 1
    assert report["sent"] == MESSAGES - spark_replay.PER_RECORD


# ---- there and back


ARCHIVED = {
    "as_lines": ("--format=lines", "--gzip"),
    "as_jsonl": ("--format=jsonl", "--compress=zstd"),
    "as_framed": ("--format=framed",),
    "as_parquet": ("--format=parquet",),
}


@pytest.mark.slow  # `test_session.py` imports what executors import, and `test_replay.py` replays on local[2]
def test_there_and_back(make_nsqd: MakeNsqd, tmp_path: Path) -> None:
    """Published, archived in every format, replayed into another nsqd, and consumed."""
    first, second = make_nsqd(), make_nsqd()
    published = {topic: some_bodies(topic) for topic in ARCHIVED}
    reported = {
        topic: archived(first, topic, bodies, tmp_path / "archive") for topic, bodies in published.items()
    }
    for topic in ARCHIVED:
        second.create(topic, spark_replay.CHANNEL)
    with spark_replay.Replay(second, tmp_path / "archive", tmp_path, LOCAL_CLUSTER) as replay:
        assert replay.end() == 0, replay.log_text()
        assert replay.report()["topics"] == {topic: len(bodies) for topic, bodies in published.items()}
    for topic, bodies in published.items():
        compare(bodies, spark_replay.copies(second, topic)).require_sound()
    found = read_messages(splits_of(tmp_path / "archive"))
    in_archive = Counter(
        (one.topic, one.body, one.id, one.timestamp_ns) for one in found if one.topic != "as_lines"
    )
    assert in_archive == Counter(
        (topic, one.body, one.id.decode(), one.timestamp_ns)
        for topic, messages in reported.items()
        for one in messages
        if topic != "as_lines"
    )


def some_bodies(topic: str) -> list[bytes]:
    """Of all sizes and all bytes; a file of lines cannot tell a line's end from a message's."""
    bodies = [bytes((number * place) % 256 for place in range(1, number % 300 + 2)) for number in range(1000)]
    return [body.replace(b"\n", b"\r") for body in bodies] if topic == "as_lines" else bodies


def archived(nsqd: NsqdProcess, topic: str, bodies: list[bytes], directory: Path) -> list[Message]:
    """By nsq-to-file; what another consumer is notified of the same messages."""
    nsqd.create(topic, "archive", "reported")
    with nsqd.connect() as client:
        client.mpub(topic, bodies)
    source = (f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}", f"--topic={topic}", "--channel=archive")
    target = (f"--output-dir={directory}", "--sync-interval=100ms", *ARCHIVED[topic])
    with ToolProcess(
        "nsq_apps", "nsq_to_file", *source, *target, log_path=directory.with_suffix(f".{topic}.log")
    ) as tool:
        nsqd.wait_for_channel(
            topic, "archive", depth=0, in_flight_count=0, deadline_s=spark_replay.DEADLINE_S
        )
        assert tool.stop() == 0
    with nsqd.connect() as client:
        client.sub(topic, "reported", 2500)
        return client.consume(len(bodies))
