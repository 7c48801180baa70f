"""The Spark pipeline with a Spark that is warm: `python -m bench.clients.spark JOB MASTER [FLAG ...]`.

It says `ready` when Spark has started. For each line `ARCHIVE PORT MESSAGES` that it reads it does the job once, and
says how many messages that were: `replay` sends the archive to the port, with the flags of spark-replay; `count`
reads it as a table. The master `standalone[2]` is a cluster of its own, of two workers with one core each.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from bench.spark.standalone import standalone
from nsq_spark import register
from nsq_spark.archive.listing import list_files
from nsq_spark.archive.storage import Storage
from nsq_spark.replay.arguments import job_of, spark_of
from nsq_spark.replay.driver import run
from nsq_spark.replay.options import PROGRAM, ReplayOptions
from nsq_spark.replay.planning import plan
from nsq_spark.session import SparkStart

_STANDALONE = re.compile(r"standalone\[(\d+)\]")
# Not before all workers are there.
_ALL_WORKERS = "--conf=spark.scheduler.minRegisteredResourcesRatio=1"


def main(job: str, master: str, *flags: str) -> None:
    with _cluster(master) as url:
        options = PROGRAM.read(["archive", f"--master={url}", _ALL_WORKERS, *flags])
        wanted = spark_of(options)
        java_options = wanted.java_options if job == "replay" else ""
        with SparkStart(wanted.master, wanted.conf, java_options=java_options) as session:
            work = JOBS[job](session, options)
            print("ready", flush=True)
            for line in sys.stdin:
                archive, port, _ = line.split()
                print(work(archive, port), flush=True)


@contextmanager
def _cluster(master: str) -> Iterator[str]:
    match = _STANDALONE.fullmatch(master)
    if match is None:
        yield master
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as name,
        standalone(Path(name), workers=int(match[1])) as cluster,
    ):
        yield cluster.master


def _replay(session: SparkStart, options: ReplayOptions) -> Callable[[str, str], int]:
    context = session.context()
    asked = job_of(options, time.time_ns())

    def send(archive: str, port: str) -> int:
        destination = replace(asked.destination, nsqd_tcp_addresses=(f"127.0.0.1:{port}",))
        job = replace(asked, paths=(archive,), destination=destination)
        outcome = run(plan(job, list_files(job.paths, Storage()), context.defaultParallelism), context)
        for error in outcome.errors:
            print(error, file=sys.stderr)
        return outcome.counts.read if outcome.is_complete else 0

    return send


def _count(session: SparkStart, options: ReplayOptions) -> Callable[[str, str], int]:
    spark = SparkSession(session.context())
    register(spark)
    return lambda archive, port: spark.read.format("nsq").load(archive).count()


JOBS: dict[str, Callable[[SparkStart, ReplayOptions], Callable[[str, str], int]]] = {"replay": _replay, "count": _count}

if __name__ == "__main__":
    main(*sys.argv[1:])
