"""The merge by time is complete and in order, whatever the files are like, and never opens many at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from nsq_spark.replay.ordering import Merge, Run, Spill

KEY_COLUMNS = ("timestamp_ns", "file_number", "position")
TIMES = st.lists(st.integers(0, 60), max_size=40)

Row = tuple[int, int, int]


def batches(rows: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(rows), size):
        times, files, positions = zip(*rows[start : start + size], strict=True)
        yield pa.record_batch(
            {
                "timestamp_ns": pa.array(times, pa.int64()),
                "file_number": pa.array(files, pa.int32()),
                "position": pa.array(positions, pa.int64()),
                "body": pa.array([b"%d" % position for position in positions], pa.binary()),
            }
        )


def merged(files: list[list[int]], size: int, most_open: int, slab_bytes: int) -> list[Row]:
    """Of each file the times of its messages, in their places."""
    runs = []
    for number, times in enumerate(files):
        rows = [(time, number, position) for position, time in enumerate(times)]
        if rows:
            runs.append(Run(min(times), partial(batches, rows, size), times == sorted(times)))
    spill = Spill()
    try:
        found = list(Merge(runs, spill, slab_bytes, most_open).rows())
    finally:
        spill.close()
    return [row for batch in found for row in zip(*(batch.column(name).to_pylist() for name in KEY_COLUMNS), strict=True)]


@settings(deadline=None)
@given(st.lists(TIMES | TIMES.map(sorted), max_size=8), st.integers(1, 7), st.integers(0, 3), st.sampled_from([1, 300, 1 << 20]))
def test_it_gives_every_row_once_and_in_order(files: list[list[int]], size: int, most_open: int, slab_bytes: int) -> None:
    everything = [(time, number, position) for number, times in enumerate(files) for position, time in enumerate(times)]
    assert merged(files, size, most_open, slab_bytes) == sorted(everything)


def test_files_are_opened_when_their_time_comes() -> None:
    opened: list[int] = []

    def open_file(number: int) -> Iterator[pa.RecordBatch]:
        opened.append(number)
        yield from batches([(number * 100 + place, number, place) for place in range(50)], 10)

    runs = [Run(number * 100, partial(open_file, number)) for number in range(5)]
    spill = Spill()
    rows = Merge(runs, spill).rows()
    next(rows)
    assert opened == [0]
    assert sum(batch.num_rows for batch in rows) == 240
    assert opened == [0, 1, 2, 3, 4]
    spill.close()
