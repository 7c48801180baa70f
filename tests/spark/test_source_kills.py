"""A streaming driver that is killed again and again, on an archive and logs that change: each message is in the table once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

import deltalake

from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import ToolProcess
from tests.support.wire import mpub_body

pytestmark = [pytest.mark.ours, pytest.mark.xdist_group("spark")]

TOPIC = "orders"
KILLS = 20

DRIVER = """
import sys
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import SparkSession
from nsq_spark import register

archive, nsqds, table, checkpoint = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)

def write(frame, number):
    if DeltaTable.is_deltatable(table):
        done = DeltaTable(table).transaction_version("orders")
        if done is not None and done >= number:
            return
    rows = frame.select("id", "nsqd", "body").toArrow()
    properties = CommitProperties(app_transactions=[Transaction("orders", number)])
    write_deltalake(table, rows, mode="append", commit_properties=properties)

stream = spark.readStream.format("nsq").options(
    path=archive, nsqd=nsqds, topic="orders", maxMessagesPerTrigger="2000", checkpointLocation=checkpoint
).load()
query = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()
query.awaitTermination()
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_twenty_times(spark_environment: dict[str, str], tmp_path: Path) -> None:
    """While two nsqds drop, roll and restart, and nsq-to-file archives from both."""
    chance = random.Random(1)
    archive, table, checkpoint = (tmp_path / name for name in ("archive", "table", "checkpoint"))
    archive.mkdir()
    flags = ("--max-bytes-per-file=16384", "--retention-time=12s")
    nsqds = [
        NsqdProcess(tmp_path / f"nsqd{number}", *flags, ports=tuple(free_ports(2))).start()
        for number in range(2)
    ]
    for nsqd in nsqds:
        nsqd.create(TOPIC, "archive")
    sources = [f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}" for nsqd in nsqds]
    options = [
        f"--topic={TOPIC}",
        "--channel=archive",
        f"--output-dir={archive}",
        "--sync-interval=50ms",
        "--format=framed",
    ]
    is_over = threading.Event()
    published: list[int] = [0, 0]

    def publish() -> None:
        while not is_over.is_set():
            for number, nsqd in enumerate(nsqds):
                first = 1_000_000 * number + published[number]
                bodies = [b"%d".ljust(500) % (first + index) for index in range(10)]
                try:
                    nsqd.post(f"/mpub?topic={TOPIC}&binary=true", mpub_body(bodies))
                except (OSError, AssertionError):
                    continue  # it restarts; the next turn publishes the same bodies, which may be there twice
                published[number] += 10
            time.sleep(0.2)  # a driver that has just begun must be able to catch up

    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    addresses = ",".join(f"127.0.0.1:{nsqd.http_port}" for nsqd in nsqds)
    command = [sys.executable, str(script), str(archive), addresses, str(table), str(checkpoint)]

    def rows() -> int:
        if not deltalake.DeltaTable.is_deltatable(str(table)):
            return 0
        return len(deltalake.DeltaTable(str(table)).to_pyarrow_table(columns=["id"]))

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        with (tmp_path / "driver.log").open("wb") as log:
            with ToolProcess(
                "nsq_apps",
                "nsq_to_file",
                *sources,
                *options,
                "--rotate-interval=2s",
                log_path=tmp_path / "to_file.log",
            ) as tool:
                for number in range(KILLS):
                    driver = subprocess.Popen(
                        command, env=spark_environment, stdout=log, stderr=log, start_new_session=True
                    )
                    before = rows()
                    wait_until(lambda before=before: rows() > before, deadline_s=150, what="a batch")  # type: ignore[misc]
                    time.sleep(chance.random() * 2)
                    os.killpg(driver.pid, signal.SIGKILL)  # its JVM and its workers too
                    driver.wait()
                    if number % 3 == 1:
                        nsqds[0].restart(clean=chance.random() < 0.5)
                is_over.set()
                publisher.join()
                wait_until(lambda: all(is_finished(nsqd) for nsqd in nsqds), what="everything to be archived")
                assert tool.stop() == 0
            driver = subprocess.Popen(
                command, env=spark_environment, stdout=log, stderr=log, start_new_session=True
            )
            ends = [int(nsqd.http("GET", f"/topic/log?topic={TOPIC}").json()["next_seq"]) for nsqd in nsqds]
            wait_until(lambda: rows() >= sum(ends), deadline_s=600, what="the rest")
            time.sleep(2)
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
    finally:
        is_over.set()
        publisher.join()
        for nsqd in nsqds:
            nsqd.stop()
    found = deltalake.DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    ids = Counter((row["nsqd"], row["id"]) for row in found)
    assert max(ids.values()) == 1, "no message twice"
    assert len(ids) == sum(ends), "none is missing"
    bodies = {int(row["body"]) for row in found}
    assert bodies == {1_000_000 * number + index for number in range(2) for index in range(published[number])}


def is_finished(nsqd: NsqdProcess) -> bool:
    channel = nsqd.channel_stats(TOPIC, "archive")
    return channel is not None and channel["depth"] == channel["in_flight_count"] == 0
