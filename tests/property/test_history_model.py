"""A log of which any files are only in a store reads as the whole log does: chunks, single records, searches, retained."""

from __future__ import annotations

import tempfile
from itertools import accumulate, cycle
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.diskqueue import history
from nsqd_py.diskqueue.compaction import Compaction, holes
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.history import LogHistory, read_stored_piece
from nsqd_py.diskqueue.journals.ranges import Range, union
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES, batches_in
from nsqd_py.protocol.batch import Batch, uniform_stride
from nsqd_py.protocol.message_ids import id_time_ns
from tests.support.examples import examples
from tests.support.stored_logs import StoredLog
from tests.unit.fakes import messages_of, sized
from tests.unit.log_bench import TOPIC, append_to, clear, read_all

BLOCK_BYTES = 150  # a file has several
FILE_BYTES = FILE_HEADER_BYTES + 4 * (RECORD_HEADER_BYTES + 60)
FIRST_NS = id_time_ns(0)
ID_STEP = 1 << 22  # one millisecond, as ids count it
ON_DISK = DROPPED, COMPACTED, WHOLE, NOT_STORED = "dropped", "compacted", "whole, and stored", "not stored"


class Published(NamedTuple):
    """A batch: its messages, the steps of the steady clock before it, and of the wall clock, in ms."""

    bodies: list[bytes]
    passed_ms: int
    wall_step_ms: int


batches = st.lists(
    st.builds(
        Published,
        st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=4),
        st.integers(1, 3),
        st.integers(-4, 4),
    ),
    min_size=15,
    max_size=60,
)


def publish(log: TopicLog, published: list[Published]) -> list[Batch]:
    """Append them; timestamps may fall, ids rise."""
    steady = list(accumulate((each.passed_ms for each in published), initial=0))[1:]
    stored = []
    for each, steady_ms in zip(published, steady, strict=True):
        body = sized(*each.bodies)
        batch = Batch(
            log.next_seq,
            (steady_ms + 1) * ID_STEP * 4,
            FIRST_NS + (steady_ms + each.wall_step_ms) * 1_000_000,
            0,
            len(each.bodies),
            uniform_stride(body, len(each.bodies)),
            body,
        )
        append_to(log, batch)
        stored.append(batch)
    return stored


def retained_of(log: TopicLog, seq: int, most_bytes: int) -> list[tuple[int, bytes]]:
    """All retained messages from `seq` on, in reads of `most_bytes`."""
    found: list[tuple[int, bytes]] = []
    while seq < log.next_seq:
        retained = log.read_retained(seq, most_bytes, lambda work: work())
        found += [pair for pair in messages_of(list(batches_in(retained.encode(), 0))) if pair[0] >= seq]
        assert retained.next_seq > seq
        assert not retained.damaged_bytes
        seq = retained.next_seq
    return found


def compact(log: TopicLog, file: LogFile, living: list[Range]) -> None:
    """Leave only these messages in a file."""
    compaction = Compaction(log, file, living, None)
    while not compaction.is_done:
        compaction.step()
    finish = compaction.settle(living)
    assert finish is not None
    finish()


@settings(max_examples=examples(200), deadline=None)
@given(batches, st.lists(st.sampled_from(ON_DISK), min_size=1, max_size=20), st.data())
def test_a_log_reads_as_if_all_of_it_were_on_the_disk(
    published: list[Published], on_disk: list[str], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name, mock.patch.object(history, "BLOCK_BYTES", BLOCK_BYTES):
        directory = Path(name)
        damage: list[str] = []
        log = TopicLog(directory, TOPIC, FILE_BYTES, damage.append)
        written = publish(log, published)
        stored = StoredLog()
        log.history = LogHistory(stored, log.damage)
        log.history.read_piece = lambda file, seq: read_stored_piece(file, seq, most_bytes=200)
        dropped = set()
        for file, what in zip(log.files[:-1], cycle(on_disk)):
            if what != NOT_STORED:
                stored.put_file(log, file)
            if what == DROPPED:
                dropped.add(file.first_seq)
            if what == COMPACTED:
                low = data.draw(st.integers(file.first_seq, file.end_seq - 1), "living")
                compact(log, file, [(low, low + 1)])
        assert log.drop_unneeded(lambda low, _high: low not in dropped) == len(dropped)
        _check(log, written, data)
        assert not damage
        clear(directory)


def _check(log: TopicLog, written: list[Batch], data: st.DataObject) -> None:
    messages = messages_of(written)
    assert log.earliest_seq == 0
    assert log.not_stored(holes(log.files, 0, log.next_seq)) == []
    seq = data.draw(st.integers(0, log.next_seq - 1), "from")
    assert read_all(log, seq) == messages[seq:]
    seqs = sorted(data.draw(st.sets(st.integers(0, log.next_seq - 1), max_size=10), "single"))
    for each, found in zip(seqs, log.read_each(seqs), strict=True):
        batch = found or next(batch for batch in log.read(each) if batch.end_seq > each)
        assert dict(messages_of([batch]))[each] == messages[each][1]
    assert retained_of(log, seq, data.draw(st.integers(1, 2000), "bytes")) == messages[seq:]
    parts = [(low, high) for _, low, high in log.files_with(seq, log.next_seq)]
    assert union(parts) == [(seq, log.next_seq)]
    some = data.draw(st.lists(st.sampled_from(written), min_size=3, max_size=5), "some")
    _check_searches(log, written, some, seq)


def _check_searches(log: TopicLog, written: list[Batch], some: list[Batch], low: int) -> None:
    for timestamp_ns in {batch.timestamp_ns + step for batch in some for step in (0, 1)}:
        later = (
            max(batch.first_seq, low)
            for batch in written
            if batch.end_seq > low and batch.timestamp_ns >= timestamp_ns
        )
        assert log.seq_at(timestamp_ns, low) == next(later, log.next_seq)
    for batch in some:
        for index in range(batch.count):
            assert log.seq_after_id(batch.base_id + index) == batch.first_seq + index + 1
        assert log.seq_after_id(batch.base_id - 1) == batch.first_seq
    for batch in some:
        steady_ns = id_time_ns(batch.base_id)
        found = log.first_published_since(steady_ns, low, by_timestamp=False)
        if batch.end_seq > low:  # an older one than necessary may be named, and none is passed over
            assert found is not None
            assert low <= found <= max(low, batch.first_seq)
