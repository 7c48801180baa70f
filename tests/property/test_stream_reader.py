"""A stream over an archive that changes: whatever happens, each message is in exactly one batch.

Spark is played here: it keeps the offsets as JSON, may end at any moment, and then reads its last batch again.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.datasource import ReadAllAvailable

from nsq_spark.source.options import read_options, stream_options
from nsq_spark.source.stream_reader import NsqStreamReader
from tests.support.archives import Published, TopicLogFile, framed, messages
from tests.support.examples import examples

pytestmark = pytest.mark.ours

COLUMNS = ("body", "file", "position")


class Query:
    """What Spark does with a stream reader."""

    def __init__(self, path: Path, **options: str) -> None:
        self._given = {"path": str(path), "splitbytes": "600", **{name.lower(): text for name, text in options.items()}}
        self.log: list[str] = []
        self.batches: list[list[tuple[bytes, str, int]]] = []
        self.restart()
        self.log.append(json.dumps(self._reader.initialOffset()))

    def restart(self) -> None:
        """In a new process; what was not committed is read again."""
        given = self._given
        self._reader = NsqStreamReader(read_options(given, 0), stream_options(given), COLUMNS)
        if len(self.log) > len(self.batches) + 1:
            self.batches.append(self._read())

    def plan(self, limit: Any = None) -> bool:
        """Write the next offset down. False: there is nothing new."""
        limit = limit or self._reader.getDefaultReadLimit()
        end = json.dumps(self._reader.latestOffset(json.loads(self.log[-1]), limit))
        if end == self.log[-1]:
            return False
        self.log.append(end)
        return True

    def _read(self) -> list[tuple[bytes, str, int]]:
        start, end = (json.loads(text) for text in self.log[-2:])
        tables = [
            pa.Table.from_batches([batch])
            for partition in self._reader.partitions(start, end)
            for batch in self._reader.read(partition)
        ]
        columns = [column.to_pylist() for column in pa.concat_tables(tables).columns] if tables else [[], [], []]
        return list(zip(*columns, strict=True))

    def stop_at_what_is_there(self) -> None:
        self._reader.prepareForTriggerAvailableNow()

    def run(self) -> bool:
        """A batch."""
        has_more = self.plan()
        if has_more:
            self.batches.append(self._read())
        return has_more

    def drain(self) -> None:
        while self.run():
            pass

    @property
    def bodies(self) -> list[bytes]:
        return sorted(body for batch in self.batches for body, _, _ in batch)

    def check_no_message_came_twice(self) -> None:
        places = [(file, position) for batch in self.batches for _, file, position in batch]
        assert len(places) == len(set(places))


class Archive:
    """Files that come and grow, and what is in them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bodies: list[bytes] = []
        self._count = 0
        self._framed: list[list[Any]] = []
        self._torn = b""

    def _new(self, count: int) -> list[Any]:
        some = messages(self._count + count)[self._count :]
        self._count += count
        self.bodies += [message.body for message in some]
        return some

    def add(self, form: str, count: int) -> None:
        """A file that is put into its place when it is complete."""
        name = self.path / f"orders.{self._count}.{form}"
        some = self._new(count)
        lines = b"".join(message.body + b"\n" for message in some)
        if form == "framed":
            name.write_bytes(framed([some[at : at + 7] for at in range(0, count, 7)]))
        elif form == "gz":
            name.write_bytes(gzip.compress(lines))
        elif form == "parquet":
            pq.write_table(pa.table({"body": [message.body for message in some]}), name, row_group_size=5)
        else:
            name.write_bytes(lines)

    def append_lines(self, count: int, torn: int) -> None:
        """To one file; of the last line only `torn` bytes are there for now."""
        lines = b"".join(message.body + b"\n" for message in self._new(count))
        with (self.path / "grows.log").open("ab") as file:
            file.write(self._torn + lines[: len(lines) - torn])
        self._torn = lines[len(lines) - torn :] if torn else b""

    def append_record(self, count: int) -> None:
        self._framed.append(self._new(count))
        (self.path / "grows.framed").write_bytes(framed(self._framed))

    def complete(self) -> None:
        with (self.path / "grows.log").open("ab") as file:
            file.write(self._torn)


COUNTS = st.integers(1, 30)
CHANGES = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(["framed", "gz", "parquet", "log"]), COUNTS),
    st.tuples(st.just("append_lines"), COUNTS, st.integers(0, 20)),
    st.tuples(st.just("append_record"), COUNTS),
)
STEPS = st.lists(st.one_of(CHANGES, st.sampled_from([("run",), ("drain",), ("restart",), ("crash",)])), max_size=25)
LIMITS: st.SearchStrategy[dict[str, str]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"maxRowsPerTrigger": st.integers(1, 40).map(str)}),
    st.fixed_dictionaries({"maxBytesPerTrigger": st.integers(1, 900).map(str)}),
    st.fixed_dictionaries({"maxFilesPerTrigger": st.integers(1, 3).map(str)}),
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS, LIMITS)
def test_each_message_is_in_exactly_one_batch(steps: list[Any], limits: dict[str, str]) -> None:
    with TemporaryDirectory() as directory:
        archive = Archive(Path(directory))
        query = Query(archive.path, **limits)
        for name, *arguments in steps:
            if name == "crash":  # a batch was planned, and then the process ended
                query.plan()
                query.restart()
            elif name in ("run", "drain", "restart"):
                getattr(query, name)()
            else:
                getattr(archive, name)(*arguments)
        archive.complete()
        query.drain()
        assert query.bodies == sorted(archive.bodies)
        query.check_no_message_came_twice()
        if "maxRowsPerTrigger" in limits:
            assert max(map(len, query.batches), default=0) <= int(limits["maxRowsPerTrigger"])


def test_a_batch_reads_the_same_again_though_the_archive_has_grown(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.append_lines(10, torn=5)
    archive.append_record(10)
    query = Query(tmp_path)
    query.plan(ReadAllAvailable())
    archive.append_lines(10, torn=0)
    archive.append_record(10)
    archive.add("gz", 10)
    query.restart()
    assert len(query.batches[0]) == 19
    query.drain()
    assert query.bodies == sorted(archive.bodies)


def test_available_now_ends_though_nsqd_goes_on_writing(tmp_path: Path) -> None:
    """Its log has room in it, and is not longer when there is more in it."""
    log, size = TopicLogFile(), 10_000

    def publish(number: int) -> None:
        log.add(Published([b"%d" % number]))
        log.write(tmp_path, tail=bytes(size - len(log.data)))

    for number in range(5):
        publish(number)
    query = Query(tmp_path, maxRowsPerTrigger="2")
    query.stop_at_what_is_there()
    for number in range(5, 15):
        query.run()
        publish(number)
    assert sum(map(len, query.batches)) < 10
    query.restart()
    query.drain()
    assert query.bodies == sorted(b"%d" % number for number in range(15))
    query.check_no_message_came_twice()
