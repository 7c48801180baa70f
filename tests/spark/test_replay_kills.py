"""spark-replay of 300,000 messages whose driver, Java process and Python worker are killed: all arrive, and few come twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from tests.support import spark_replay
from tests.support.ledger import compare
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until

pytestmark = [pytest.mark.usefixtures("java_home"), pytest.mark.slow]

MESSAGES = 300_000
TASKS = 2
SLICE = 5_000  # the most messages of a task that come again after a kill
Kill = Callable[[spark_replay.Replay, NsqdProcess], None]


def kill_driver(replay: spark_replay.Replay, nsqd: NsqdProcess) -> None:
    children = psutil.Process(replay.pid).children(recursive=True)
    replay.kill()
    psutil.wait_procs(children, spark_replay.DEADLINE_S)


def kill_java(replay: spark_replay.Replay, nsqd: NsqdProcess) -> None:
    (java,) = (child for child in psutil.Process(replay.pid).children() if child.name() == "java")
    java.kill()


def kill_worker(replay: spark_replay.Replay, nsqd: NsqdProcess) -> None:
    """Kill the Python process of a task, which is connected to nsqd."""
    found = psutil.Process(replay.pid).children(recursive=True)
    workers = [process for process in found if process.name() != "java"]
    wait_until(lambda: spark_replay.connected(workers, nsqd), what="a worker that publishes")[0].kill()


KILLS: tuple[Kill, ...] = (kill_driver, kill_java, kill_worker, kill_driver, kill_worker)


def test_five_kills_lose_nothing_and_the_duplicates_are_reported(
    make_nsqd: MakeNsqd, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    nsqd = make_nsqd()
    nsqd.create(spark_replay.TOPIC, spark_replay.CHANNEL)
    archive = spark_replay.write_archive(tmp_path / "orders.nsqf", MESSAGES)
    flags = (f"--master=local[{TASKS}]", f"--checkpoint={tmp_path / 'checkpoint'}")
    reported = 0
    for kill in KILLS:
        with spark_replay.Replay(nsqd, archive, tmp_path, "--rate=15000", *flags) as replay:
            spark_replay.wait_for_messages(nsqd, replay, spark_replay.arrived(nsqd) + MESSAGES // 10)
            kill(replay, nsqd)
            if kill is not kill_driver:
                assert replay.end() == 3, replay.log_text()
                reported = max(reported, replay.report()["possible_duplicates"])
    with spark_replay.Replay(nsqd, archive, tmp_path, *flags) as replay:
        assert replay.end() == 0, replay.log_text()
        report = replay.report()
    assert report["sent_before"] + report["sent"] == MESSAGES
    found = compare(
        spark_replay.numbered(MESSAGES), spark_replay.copies(nsqd), at_least_once=True
    ).require_sound()
    reported = max(reported, report["possible_duplicates"])
    record_property("again", found.again)
    record_property("reported", reported)
    assert found.again <= len(KILLS) * TASKS * SLICE
    assert found.again <= reported <= 10 * max(1, found.again)
