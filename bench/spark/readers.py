"""Queries on archives: ours and Spark's own readers on the same files, in turn, in one Spark that is warm.

`python -m bench.spark.readers` prints seconds of processor time of this process and all below it, and keeps them in
bench/results. `--replay` also measures spark-replay with and without --where, each as a process of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import click

from bench import procfs, record
from bench.machine import commit, this_machine
from bench.spark.archive import write_archive
from bench.spark.sink import Sink
from bench.wire import TOPIC

_JSON = "timestamp BIGINT, id STRING, attempts INT, topic STRING, channel STRING, nsqd STRING, body STRING"
_LEVELS = "get_json_object(CAST(body AS STRING), '$.level') AS level"
_PR_SET_CHILD_SUBREAPER = 36
_PREDICATES = ("", "json.level = 'error'", "json.number < 250", "json.number % 10 = 3",
               "length(json.text) > 250 OR json.number < 250")  # fmt: skip
_COLD_MESSAGES = 10_000
# After three runs each, the JVM still compiles what ours does on top: a short query then counts 1.5 x, later 1.2 x.
_WARM_UPS = 10


@dataclass
class Figures:
    """Seconds of processor time of each round, by the way of reading; `built_in` is Spark's own reader."""

    query: str
    ours: str
    cpu_s: dict[str, list[float]] = field(default_factory=dict)
    wall_s: dict[str, list[float]] = field(default_factory=dict)

    def ratio(self, way: str) -> float | None:
        """Return the median of one way beside that of the built-in; None where there is no built-in."""
        built_in = self.cpu_s.get("built-in")
        return median(self.cpu_s[way]) / median(built_in) if built_in else None

    def line(self) -> str:
        ways = [f"{way} {median(values):.2f} s" for way, values in self.cpu_s.items()]
        ratio = self.ratio(self.ours)
        return f"{self.query}: {', '.join(ways)}" + (f"; {self.ours} is {ratio:.2f} x" if ratio else "")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--messages", default=2_000_000, show_default=True, type=click.IntRange(1000), help="Of 200 bytes each.")
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1), help="Runs of each way, in turn.")
@click.option("--only", default="", metavar="RE", help="Queries whose name matches.")
@click.option("--replay/--no-replay", default=False, help="Measure spark-replay too.")
@click.option("--record/--no-record", "recorded", default=True, help="Keep the figures in bench/results.")
def main(messages: int, rounds: int, only: str, replay: bool, recorded: bool) -> None:
    """Measure queries on archives beside Spark's own readers."""
    with tempfile.TemporaryDirectory(prefix="bench-readers-") as directory:
        files = write_files(Path(directory), messages)
        found = measured_queries(files, rounds, re.compile(only))
        if replay:
            found = chain(found, measured_replays(Path(directory), files["framed"], rounds))
        print(f"{this_machine()}; commit {commit()}; {messages:,} messages; median of {rounds} rounds, processor time")
        figures = []
        for one in found:
            figures.append(one)
            print(one.line(), flush=True)
    if recorded:
        print(f"recorded in {_write(figures, messages)}")


# ---- archives


def write_files(directory: Path, messages: int) -> dict[str, Path]:
    """Write the same messages in each format; by its name."""
    framed = write_archive(directory / "bench.framed", messages).path
    parquet, jsonl, lines = (directory / f"bench.{suffix}" for suffix in ("parquet", "jsonl", "log"))
    from nsq_spark.archive.listing import list_files
    from nsq_spark.archive.read import read
    from nsq_spark.archive.splits import plan_splits
    from nsq_spark.archive.storage import Storage
    from nsq_tools.to_file.formats.parquet import convert

    convert(framed, parquet, "zstd")
    with jsonl.open("wb") as objects, lines.open("wb") as texts:
        storage = Storage()
        for split in plan_splits(list_files([str(framed)], storage)):
            for chunk in read(split, storage):
                rows = chunk.arrow(["timestamp_ns", "id", "attempts", "topic", "channel", "nsqd", "body"]).to_pylist()
                for row in rows:
                    body = row["body"].decode()
                    named = {"timestamp": row.pop("timestamp_ns"), **row, "body": body}
                    objects.write(json.dumps(named, separators=(",", ":")).encode() + b"\n")
                    texts.write(row["body"] + b"\n")
    for path in (framed, parquet, jsonl, lines):
        os.utime(path, ns=(0, time.time_ns() - 10**13))  # hours ago: nobody writes to it
    _list_in_manifest(jsonl, messages)
    return {"framed": framed, "parquet": parquet, "jsonl": jsonl, "lines": lines}


def _list_in_manifest(jsonl: Path, messages: int) -> None:
    """Nsq-to-file does so; `nsq_archive` leaves other files of jsonl to our reader."""
    from nsq_tools.to_file.manifest import Entry, Manifest

    size_bytes = jsonl.stat().st_size
    Manifest(jsonl.parent).add(Entry(
        jsonl.name, TOPIC, "archive", "jsonl", "none", messages, None, None, 0, size_bytes, None, False, 0, 0
    ))  # fmt: skip


# ---- queries


def measured_queries(files: dict[str, Path], rounds: int, only: re.Pattern[str]) -> Iterator[Figures]:
    """Each way often enough to warm up, and then all of them in turn."""
    from nsq_spark.session import quiet_session
    from nsq_spark.source import register

    with quiet_session("local[2]", {"spark.driver.memory": "2g"}) as spark:
        register(spark)
        for figures, ways in _queries(spark, files):
            if not only.search(figures.query):
                continue
            for _ in range(_WARM_UPS):
                answers = {name: way() for name, way in ways.items()}
            if len(set(map(str, answers.values()))) > 1:
                raise click.ClickException(f"{figures.query}: the answers differ: {answers}")
            for _ in range(rounds):
                for name, way in ways.items():
                    _timed(figures, name, way)
            yield figures


def _queries(spark: Any, files: dict[str, Path]) -> Iterator[tuple[Figures, dict[str, Callable[[], Any]]]]:
    from nsq_spark import nsq_archive

    def source(form: str, columns: str = "") -> Any:
        reader = spark.read.format("nsq")
        return (reader.option("columns", columns) if columns else reader).load(str(files[form]))

    def table(form: str) -> Any:
        return nsq_archive(spark, str(files[form]))

    def greatest(frame: Any, time: str = "timestamp_ns") -> list[Any]:
        return list(frame.agg({time: "max", "attempts": "max"}).collect()[0])

    def levels(frame: Any) -> list[Any]:
        return sorted(map(tuple, frame.selectExpr(_LEVELS).groupBy("level").count().collect()))

    def texts() -> Any:
        return spark.read.text(str(files["lines"])).withColumnRenamed("value", "body")

    objects = spark.read.schema(_JSON).json
    yield Figures("framed: count", "columns"), {
        "all columns": lambda: source("framed").count(), "columns": lambda: source("framed", "position").count(),
    }  # fmt: skip
    yield Figures("parquet: count", "nsq_archive"), {
        "all columns": lambda: source("parquet").count(), "columns": lambda: source("parquet", "position").count(),
        "nsq_archive": lambda: table("parquet").count(),
        "built-in": lambda: spark.read.parquet(str(files["parquet"])).count(),
    }  # fmt: skip
    yield Figures("parquet: bytes of bodies", "nsq_archive"), {
        "columns": lambda: source("parquet", "body").selectExpr("sum(length(body))").collect()[0][0],
        "nsq_archive": lambda: table("parquet").selectExpr("sum(length(body))").collect()[0][0],
        "built-in": lambda: spark.read.parquet(str(files["parquet"])).selectExpr("sum(length(body))").collect()[0][0],
    }  # fmt: skip
    yield Figures("jsonl: count", "nsq_archive"), {
        "columns": lambda: source("jsonl", "position").count(), "nsq_archive": lambda: table("jsonl").count(),
        "built-in": lambda: objects(str(files["jsonl"])).count(),
    }  # fmt: skip
    yield Figures("jsonl: greatest of two columns", "nsq_archive"), {
        "columns": lambda: greatest(source("jsonl", "timestamp_ns,attempts")),
        "nsq_archive": lambda: greatest(table("jsonl")),
        "built-in": lambda: greatest(objects(str(files["jsonl"])), "timestamp"),
    }  # fmt: skip
    yield Figures("lines: count by a field of JSON", "nsq_archive"), {
        "columns": lambda: levels(source("lines", "body")), "nsq_archive": lambda: levels(table("lines")),
        "built-in": lambda: levels(texts()),
    }  # fmt: skip


# ---- spark-replay


def measured_replays(directory: Path, framed: Path, rounds: int) -> Iterator[Figures]:
    """As whole processes, with Spark's start; of few messages, that is a cold start."""
    adopt_orphans()
    few = write_archive(directory / "few.nsqf", _COLD_MESSAGES).path
    for name, path in (("cold", few), ("whole", framed)):
        figures = Figures(f"spark-replay, {name}", "")
        for _ in range(rounds):
            for where in _PREDICATES:
                _timed(figures, where or "without --where", partial(_replay, path, where))
        yield figures


def _replay(path: Path, where: str) -> None:
    with Sink() as sink:
        words = [sys.executable, "-m", "nsq_apps.spark_replay", str(path), "--master=local[2]", "--yes"]
        words += [f"--nsqd-tcp-address=127.0.0.1:{sink.port}", *(["--where", where] if where else [])]
        subprocess.run(words, check=True, capture_output=True)
        wait_for_orphans()


def adopt_orphans() -> None:
    """Make this process the parent of processes whose parent ends, such as Spark's JVM (prctl(2))."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait_for_orphans() -> None:
    """Wait for all children, so that the system counts their processor time as that of this process's children."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


# ---- measuring


def _timed(figures: Figures, name: str, way: Callable[[], Any]) -> None:
    cpu_s, wall_s = procfs.tree_cpu_s(os.getpid()), time.perf_counter()
    way()
    figures.wall_s.setdefault(name, []).append(time.perf_counter() - wall_s)
    figures.cpu_s.setdefault(name, []).append(procfs.tree_cpu_s(os.getpid()) - cpu_s)


def _write(figures: list[Figures], messages: int) -> Path:
    document = {
        "date": date.today().isoformat(), "commit": commit(), "machine": asdict(this_machine()), "messages": messages,
        "unit": "CPU seconds", "queries": [asdict(one) for one in figures],
    }  # fmt: skip
    path = record.RESULTS / f"{document['date']}-{document['commit']}-readers.json"
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


if __name__ == "__main__":
    main()
