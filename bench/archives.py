"""Archives read by Spark's own readers and by ours: `python -m bench.archives`, which docs/performance.md quotes.

    python -m bench.archives                        every row, three times each side
    python -m bench.archives --messages 2000000     the size of the archives; the largest one has five times as many
    python -m bench.archives --only 'skewed'        rows whose name matches

A row is an archive, as nsq-to-file writes it, and a query. The sides answer the query alternately in one Spark with two cores:
Spark's reader of the same files; `nsq_archive`; `format("nsq")` with all its columns, and with only those that the query needs.
The processor time of a run is that of all processes (driver, JVM, Python workers), also of those that end in it.
"""

import argparse
import ctypes
import json
import os
import random
import re
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from bench import procfs
from bench.machine import commit, this_machine
from nsq_spark import nsq_archive, register
from nsq_spark.session import java_home
from nsq_tools.to_file.formats import FORMATS, Tally
from nsq_tools.to_file.output import MANIFEST
from nsqd_py.diskqueue.messages import Messages
from nsqd_py.stores.compression import CODECS, NONE

_PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
_LOOK_EVERY_S = 0.1
_START_NS = 1_795_000_000_000_000_000
_PER_BATCH = 2500
_IS_ERROR = '"level":"error"'
_ERRORS_EVERY = 100
_JSON_DDL = (
    "timestamp BIGINT, id STRING, attempts INT, topic STRING, channel STRING, nsqd STRING, body STRING, "
    "body_base64 STRING"
)

# ---- rows


class Archive(NamedTuple):
    """Files with messages of about 200 bytes. `largest` is the share of them that the first file has; 0: as much as others."""

    name: str
    messages: int
    files: int
    largest: float = 0
    has_manifest: bool = True

    def counts(self) -> list[int]:
        """Return the number of messages of each file."""
        first = round(self.messages * (self.largest or 1 / self.files))
        rest = self.messages - first
        others = self.files - 1
        return [first, *(rest * (one + 1) // others - rest * one // others for one in range(others))]


class Row(NamedTuple):
    archive: Archive
    format: str
    query: str

    @property
    def name(self) -> str:
        return f"{self.archive.name}: {self.format}, {self.query}"


# Each query, and the columns of `format("nsq")` that it needs.
_FILTER, _COUNT = "filter on the body", "count()"
_NEEDED = {_FILTER: "text STRING", _COUNT: "position BIGINT"}
_SPARK, _ARCHIVE, _SOURCE, _NAMED = SIDES = (
    "Spark",
    "nsq_archive",
    'format("nsq")',
    'format("nsq"), columns named',
)


def rows(messages: int) -> Iterator[Row]:
    """Yield the rows, those of an archive one after the other."""
    base = Archive(f"{messages:,} messages", messages, 16)
    large = Archive(f"{messages * 5:,} messages", messages * 5, 16)
    skewed = Archive("one skewed file", messages, 16, largest=0.9)
    bare = Archive("without a manifest", messages, 16, has_manifest=False)
    small = [Archive(f"{files:,} files", max(files, messages // 10), files) for files in (5_000, 10_000)]
    for archive, formats, queries in (
        (base, ("lines", "jsonl", "parquet"), (_FILTER, _COUNT)),
        (large, ("jsonl", "parquet"), (_FILTER, _COUNT)),
        (skewed, ("jsonl", "parquet"), (_FILTER,)),
        (bare, ("jsonl",), (_FILTER,)),
        *((archive, ("jsonl", "parquet"), (_FILTER,)) for archive in small),
    ):
        for form in formats:
            yield from (Row(archive, form, query) for query in queries)


# ---- archives


def write_archive(directory: Path, archive: Archive, form: str) -> None:
    """Write the files as nsq-to-file does, with its manifest; Parquet with --compress=zstd."""
    first, lines = 0, []
    for number, count in enumerate(archive.counts()):
        path = directory / f"{number:05d}{FORMATS[form].suffix}"
        lines.append(_write_file(path, range(first, first + count), form))
        first += count
    if archive.has_manifest:
        (directory / MANIFEST).write_text("".join(json.dumps(line) + "\n" for line in lines))


def _write_file(path: Path, numbers: range, form: str) -> dict[str, Any]:
    """Write a file, and return its line of the manifest."""
    kind = FORMATS[form]
    tally = Tally()
    work = path.with_suffix(".work")
    with work.open("wb") as file:
        encoder = kind.encoder(CODECS[NONE], 0, print)
        file.write(encoder.header)
        for low in range(numbers.start, numbers.stop, _PER_BATCH):
            messages = _messages(range(low, min(low + _PER_BATCH, numbers.stop)))
            tally.add(len(messages), messages.timestamps_ns)
            file.write(encoder.encode([messages]).data)
    if kind.convert:
        kind.convert(work, path, "zstd", ())
        work.unlink()
    else:
        work.rename(path)
    return {
        "path": path.name,
        "topic": "orders",
        "channel": "archive",
        "format": form,
        "compress": "zstd" if form == "parquet" else "none",
        "messages": len(numbers),
        "first_timestamp": tally.first_timestamp_ns,
        "last_timestamp": tally.last_timestamp_ns,
        "offset": 0,
        "bytes": path.stat().st_size,
        "crc32c": None,
    }


def _messages(numbers: range) -> Any:
    times_ns = [_START_NS + number * 1000 for number in numbers]
    ids = [b"%016x" % (number << 12) for number in numbers]
    bodies = [_body(number) for number in numbers]
    return Messages("orders", "archive", "127.0.0.1:4150", times_ns, [1] * len(numbers), ids, bodies)


def _body(number: int) -> bytes:
    level = "info" if number % _ERRORS_EVERY else "error"
    texts = _texts()
    return b'{"level":"%b","number":%d,"text":"%b"}' % (level.encode(), number, texts[number % len(texts)])


@cache
def _texts() -> list[bytes]:
    """Return texts that compress by half, as hex digits do."""
    chance = random.Random(1)
    return [chance.randbytes(75).hex().encode() for _ in range(10_007)]


# ---- one run


class Measured(NamedTuple):
    """A run of a query: what it found, processor time of all processes, and the peaks of resident memory.

    driver_mb  of the driver with its JVM, which is the executor too; `workers_mb`: of all Python workers that took part
    """

    found: int
    cpu_s: float
    driver_mb: float
    workers_mb: float


class Usage(threading.Thread):
    """Looks at the memory and the processor time of this process and its descendants until it is stopped.

    Each process counts with the time that it had used at the last look: the daemon of Spark's workers ignores SIGCHLD, so
    the kernel adds the time of those that end to no parent.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.driver_bytes = self.workers_bytes = 0
        self._before_s = {pid: procfs.own_cpu_s(pid) for pid in procfs.family(os.getpid())}
        self._now_s = dict(self._before_s)
        self._is_stopped = threading.Event()

    def run(self) -> None:
        while not self._is_stopped.wait(_LOOK_EVERY_S):
            self._look()

    def stop(self) -> None:
        self._is_stopped.set()
        self.join()
        self._look()

    @property
    def cpu_s(self) -> float:
        return sum(self._now_s.values()) - sum(self._before_s.values())

    def _look(self) -> None:
        driver, workers = self._memory_bytes()
        self.driver_bytes = max(self.driver_bytes, driver)
        self.workers_bytes = max(self.workers_bytes, workers)

    def _memory_bytes(self) -> tuple[int, int]:
        """Return the resident memory of the driver and its JVM, and that of Python workers."""
        driver, *others = family = procfs.family(os.getpid())
        for pid in family:
            self._now_s[pid] = procfs.own_cpu_s(pid) or self._now_s.get(pid, 0.0)  # 0: it has ended
        sums = [procfs.own_rss_bytes(driver), 0]
        for pid in others:
            with suppress(OSError):
                is_worker = Path(f"/proc/{pid}/comm").read_text().startswith("python")
                # Spark keeps workers for the next query. Those that use no processor time take no part in this one.
                if not is_worker or self._now_s[pid] > self._before_s.get(pid, 0):
                    sums[is_worker] += procfs.own_rss_bytes(pid)
        return sums[0], sums[1]


def measure(spark: Any, side: str, row: Row, directory: Path) -> Measured:
    """Answer the query once. The JVM returns before it what memory it does not use."""
    spark.sparkContext._jvm.System.gc()
    usage = Usage()
    usage.start()
    found = _answer(spark, side, row.format, row.query, str(directory))
    usage.stop()
    return Measured(found, usage.cpu_s, usage.driver_bytes / 1e6, usage.workers_bytes / 1e6)


def _answer(spark: Any, side: str, form: str, query: str, directory: str) -> int:
    table = _table(spark, side, form, query, directory)
    body = "body"
    if side == _SPARK and form == "lines":
        body = "value"
    elif side == _NAMED:
        body = "text"
    if query == _FILTER:
        table = table.where(f"contains(CAST({body} AS STRING), '{_IS_ERROR}')")
    return int(table.count())


def _table(spark: Any, side: str, form: str, query: str, directory: str) -> Any:
    if side == _ARCHIVE:
        return nsq_archive(spark, directory)
    if side in (_SOURCE, _NAMED):
        reader = spark.read.format("nsq")
        return (reader.schema(_NEEDED[query]) if side == _NAMED else reader).load(directory)
    if form == "jsonl":
        return spark.read.schema(_JSON_DDL).json(directory)
    return spark.read.text(directory) if form == "lines" else spark.read.parquet(directory)


# ---- all runs


def measured(
    spark: Any, row: Row, sides: list[str], rounds: int, directory: Path
) -> dict[str, list[Measured]]:
    """Run all sides in turn, in an order that changes with each round."""
    runs: dict[str, list[Measured]] = {side: [] for side in sides}
    order = list(sides)
    for _ in range(rounds):
        for side in order:
            runs[side].append(measure(spark, side, row, directory))
        order.reverse()
    expected = (
        row.archive.messages if row.query == _COUNT else len(range(0, row.archive.messages, _ERRORS_EVERY))
    )
    if wrong := {one.found for some in runs.values() for one in some} - {expected}:
        sys.exit(f"{row.name}: {wrong.pop()} messages found, and not {expected}")
    return runs


def lines(row: Row, runs: dict[str, list[Measured]]) -> Iterator[str]:
    """Yield a line of a table in Markdown for each side. A ratio is the median of the ratios of neighbouring runs."""
    for side, some in runs.items():
        cpu_s, driver_mb, workers_mb = (
            statistics.median(getattr(one, name) for one in some) for name in Measured._fields[1:]
        )
        ratio = ""
        if _SPARK in runs and side != _SPARK:
            ratios = [ours.cpu_s / sparks.cpu_s for ours, sparks in zip(some, runs[_SPARK], strict=True)]
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        yield f"| {row.name} | {side} | {cpu_s:.1f} | {ratio} | {driver_mb:,.0f} | {workers_mb:,.0f} |"


@contextmanager
def session() -> Iterator[Any]:
    """Yield a Spark as a user's script starts it, with two cores."""
    with tempfile.TemporaryDirectory() as scratch:
        if home := java_home(os.environ, Path(scratch)):
            os.environ["JAVA_HOME"] = home
        os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = (
            builder.config("spark.ui.showConsoleProgress", "false")
            .config("spark.local.dir", scratch)
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        register(spark)
        spark.range(1).count()
        yield spark
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.archives", allow_abbrev=False, description=__doc__.partition(":")[0]
    )
    add = parser.add_argument
    add("--messages", type=int, default=2_000_000, help="messages of an archive (default: 2,000,000)")
    add("--only", type=re.compile, default=re.compile(""), metavar="RE", help="rows whose name matches")
    add("--sides", type=re.compile, default=re.compile(""), metavar="RE", help="sides whose name matches")
    add("--rounds", type=int, default=3, help="runs of each side (default: 3)")
    add(
        "--directory",
        type=Path,
        metavar="DIR",
        help="where to write archives: 5 GB (default: that of temporary files)",
    )
    options = parser.parse_args()
    chosen = [row for row in rows(options.messages) if options.only.search(row.name)]
    sides = [side for side in SIDES if options.sides.search(side)]
    if not chosen or not sides:
        parser.error("--only, --sides: nothing matches")
    # Workers that outlive their parents become children of this process: else their processor time would be lost.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    print(
        f"{this_machine()}; commit {commit()}; {datetime.now(UTC):%Y-%m-%d}; {options.rounds} runs of each side"
    )
    with session() as spark:
        print(f"Spark's start: {procfs.cpu_s(os.getpid()):.1f} CPU s")
        print("| archive and query | reader | CPU s | ratio | driver and JVM, MB | workers, MB |")
        print("|---|---|---|---|---|---|", flush=True)
        while chosen:
            archive, form, _ = chosen[0]
            with tempfile.TemporaryDirectory(prefix="bench-archives-", dir=options.directory) as name:
                write_archive(Path(name), archive, form)
                os.sync()  # Each run starts without the write-back of what was written.
                while chosen and chosen[0][:2] == (archive, form):
                    row = chosen.pop(0)
                    runs = measured(spark, row, sides, options.rounds, Path(name))
                    print("\n".join(lines(row, runs)), flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
