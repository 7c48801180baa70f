"""The stored files of nsqd's own logs: their bytes in a bounded cache, and when a file may leave the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd_py.diskqueue.history import BLOCK_BYTES
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.objects.calls import Listed, Missing, Objects, StoreError, StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.protocol.message_ids import TICK_SHIFT, id_time_ns
from nsqd_py.settings.kinds import ByTopic
from nsqd_py.store import history
from nsqd_py.store.files import Retention, StoredFiles
from nsqd_py.store.history import BlockCache, StoreHistory
from nsqd_py.store.layout import HEAD_NAME, Head, StoredFile
from tests.unit.fakes import SECOND, limits
from tests.unit.log_bench import TOPIC, fill
from tests.unit.log_bench import Disk as LogDisk

SIZE = 10 * BLOCK_BYTES + 1234
NAME = "files/orders/some.log"


class CountedObjects:
    """Objects in memory, with the ranges that were asked for."""

    def __init__(self, error: Exception | None = None) -> None:
        self.objects: Objects = open_objects("memory://")
        self.ranges: list[tuple[int, int]] = []
        self.error = error
        self.cut_bytes = 0

    def get(self, name: str) -> tuple[bytes, Any]:
        return self.objects.get(name)

    def list(self, prefix: str) -> Iterator[Listed]:
        return self.objects.list(prefix)

    def get_range(self, name: str, start: int, end: int) -> bytes:
        self.ranges.append((start, end))
        if self.error is not None:
            raise self.error
        return self.objects.get_range(name, start, end - self.cut_bytes)


@pytest.fixture
def objects() -> Any:
    counted = CountedObjects()
    counted.objects.create(NAME, content())
    return counted


def content() -> bytes:
    return bytes(range(251)) * (SIZE // 251 + 1)


def some(start: int, size: int) -> bytes:
    return content()[start : start + size]


# ---- bytes


def test_a_reader_that_goes_on_gets_several_blocks_with_a_request(objects: Any) -> None:
    cache = BlockCache(objects)
    for offset in range(64, SIZE - 5000, 300_000):
        assert cache.read(NAME, SIZE, offset, 5000) == some(offset, 5000)
    assert len(objects.ranges) <= 6
    assert objects.ranges[0] == (0, BLOCK_BYTES)
    assert sum(end - start for start, end in objects.ranges) == SIZE


def test_a_single_read_gets_one_block(objects: Any) -> None:
    cache = BlockCache(objects)
    for block in (7, 3, 5, 10):
        assert cache.read(NAME, SIZE, block * BLOCK_BYTES + 9, 100) == some(block * BLOCK_BYTES + 9, 100)
    assert [end - start for start, end in objects.ranges] == [BLOCK_BYTES, BLOCK_BYTES, BLOCK_BYTES, 1234]


def test_what_lies_over_blocks_comes_whole(objects: Any) -> None:
    cache = BlockCache(objects)
    offset = 2 * BLOCK_BYTES - 10
    assert cache.read(NAME, SIZE, offset, 6 * BLOCK_BYTES) == some(offset, 6 * BLOCK_BYTES)
    assert len(objects.ranges) == 4


def test_memory_is_bounded(objects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "_MOST_BLOCKS", 3)
    cache = BlockCache(objects)
    for block in (0, 2, 4, 0, 6, 0, 2):
        cache.read(NAME, SIZE, block * BLOCK_BYTES, 10)
        assert len(cache._blocks) <= 3
    # 2 was the least recently used one when 6 came.
    assert [start // BLOCK_BYTES for start, _ in objects.ranges] == [0, 2, 4, 6, 2]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StoreError("timed out"), "the store does not answer: timed out"),
        (StoreRefused("no credentials"), f"the store refuses to read {NAME}: no credentials"),
        (Missing("it is missing"), "the store does not answer: it is missing, and head.json cannot be read"),
    ],
    ids=["away", "refused", "missing"],
)
def test_errors_say_what_the_store_said(objects: Any, error: Exception, text: str) -> None:
    objects.error = error
    cache = BlockCache(objects)
    with pytest.raises(OSError, match=text):
        cache.read(NAME, SIZE, 0, 10)
    objects.error = None
    assert cache.read(NAME, SIZE, 0, 10) == some(0, 10)


def test_a_file_is_missing_only_in_a_store_that_has_a_head(objects: Any) -> None:
    """A proxy in front of a store, too, says that it does not know a name."""
    cache = BlockCache(objects)
    objects.error = Missing("it is missing")
    with pytest.raises(OSError) as error:
        cache.read(NAME, SIZE, 0, 10)
    assert not isinstance(error.value, FileNotFoundError)
    objects.objects.create(HEAD_NAME, Head("5" * 16, 1, "7" * 16, "here").encode())
    with pytest.raises(FileNotFoundError, match="the store has lost a file: it is missing"):
        cache.read(NAME, SIZE, 0, 10)


def test_a_torn_answer_is_an_error_and_not_the_end_of_the_file(objects: Any) -> None:
    objects.cut_bytes = 1
    with pytest.raises(OSError, match=f"the store has {BLOCK_BYTES - 1} of the bytes 0 to {BLOCK_BYTES}"):
        BlockCache(objects).read(NAME, SIZE, 0, 10)


def test_what_a_truncated_object_lacks_is_damaged_and_not_waited_for(objects: Any) -> None:
    left_bytes = 2 * BLOCK_BYTES + 100
    objects.objects.delete([NAME])
    objects.objects.create(NAME, some(0, left_bytes))
    cache = BlockCache(objects)
    assert cache.read(NAME, SIZE, left_bytes - 50, 100) == some(left_bytes - 50, 50) + bytes(50)
    assert cache.read(NAME, SIZE, 9 * BLOCK_BYTES, 100) == bytes(100)
    assert cache.read(NAME, SIZE, SIZE - 10, 10) == bytes(10)
    assert cache.read(NAME, SIZE, 5, 100) == some(5, 100)


def test_while_a_request_hangs_no_other_one_begins(objects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    cache = BlockCache(objects, lambda: now_s)
    seen: list[str] = []

    def get_range(name: str, start: int, end: int) -> bytes:
        """The answer takes too long; others look in the meantime."""
        nonlocal now_s
        now_s += history.HANGS_S
        cache.check_answers()
        now_s += 0.1
        for attempt in (cache.check_answers, lambda: cache.read(NAME, SIZE, 5 * BLOCK_BYTES, 10)):
            with pytest.raises(TimeoutError, match="the store does not answer: it has taken more than 5 s"):
                attempt()
            seen.append(name)
        return content()[start:end]

    cache.check_answers()
    monkeypatch.setattr(objects, "get_range", get_range)
    assert cache.read(NAME, SIZE, 0, 10) == some(0, 10)
    assert seen == [NAME, NAME]
    monkeypatch.undo()
    cache.check_answers()
    assert cache.read(NAME, SIZE, 5 * BLOCK_BYTES, 10) == some(5 * BLOCK_BYTES, 10)


def test_a_request_that_fails_does_not_hang(objects: Any) -> None:
    now_s = 100.0
    cache = BlockCache(objects, lambda: now_s)
    objects.error = StoreError("timed out")
    with pytest.raises(OSError, match="timed out"):
        cache.read(NAME, SIZE, 0, 10)
    now_s += 2 * history.HANGS_S
    cache.check_answers()


# ---- the files of a log


def stored(first_seq: int, end_seq: int, **others: Any) -> StoredFile:
    fields: dict[str, Any] = {
        "salt": 1,
        "size_bytes": 100,
        "crc": 0,
        "is_sealed": True,
        "first_id": 1,
        "last_id": 2,
        "first_ns": 1,
        "last_ns": 2,
        "epoch": 1,
    }
    return StoredFile(topic=TOPIC, first_seq=first_seq, end_seq=end_seq, **fields | others)


class Attached:
    """A log with files of two messages each, and a store that has none of them yet."""

    def __init__(self, disk: LogDisk, **options: Any) -> None:
        self.files = StoredFiles(())
        self.store = StoreHistory(open_objects("memory://"), self.files, limits(**options))
        fill(disk, 4)
        self.log = disk.log
        self.store.attach(TOPIC, self.log)

    def put(self, index: int, *, is_sealed: bool = True, is_named: bool = True) -> StoredFile:
        file = self.log.files[index]
        added = stored(file.first_seq, file.end_seq, salt=file.salt, is_sealed=is_sealed)
        if not is_named:
            self.files.unnamed.add(added.name)
        self.files.add(added)
        return added

    def dropped(self) -> list[int]:
        before = [file.first_seq for file in self.log.files]
        self.log.drop_unneeded(lambda _low, _high: False)
        return [seq for seq in before if seq not in [file.first_seq for file in self.log.files]]


@pytest.fixture
def disk(directory: Path) -> LogDisk:
    return LogDisk(directory)


def test_a_file_goes_when_a_round_has_named_its_stored_one(disk: LogDisk) -> None:
    attached = Attached(disk, retention_bytes=ByTopic(1))
    assert attached.dropped() == []
    attached.put(0, is_sealed=False)
    attached.put(1, is_named=False)
    named = attached.put(2)
    assert attached.dropped() == [named.first_seq]
    attached.files.unnamed.clear()
    assert attached.dropped() == [2]
    attached.put(0)
    assert attached.dropped() == [0]
    assert [(file.first_seq, file.end_seq) for file in attached.log.history.segments] == [
        (0, 2),
        (2, 4),
        (4, 6),
    ]


def test_what_no_one_retains_need_not_be_stored(disk: LogDisk) -> None:
    assert Attached(disk).dropped() == [0, 2, 4]


def test_a_new_log_of_a_topic_reads_none_of_the_old_one(disk: LogDisk) -> None:
    attached = Attached(disk, store_retention_bytes=ByTopic(1))
    attached.put(0)
    other = TopicLog(disk.directory, TOPIC, 1 << 20, lambda _text: None)
    attached.store.attach(TOPIC, other)
    assert not other.history.segments
    assert other.earliest_seq == other.next_seq == 0
    assert len(attached.files.forget_others(TOPIC, other)) == 1
    attached.files.add(stored(0, 1))
    assert len(other.history.segments) == 1
    assert not attached.log.history.segments


def test_the_list_of_files_is_replaced_when_it_changes(disk: LogDisk) -> None:
    attached = Attached(disk)
    attached.put(1)
    before = attached.log.history.segments
    assert attached.log.history.segments is before
    attached.put(0)
    after = attached.log.history.segments
    assert [len(before), len(after)] == [1, 2]
    attached.files.remove(after[0])
    assert list(attached.log.history.segments) == list(before)


# ---- retention

AGES = st.integers(-2, 10)
FILES = st.lists(
    st.tuples(
        st.integers(1, 5), st.integers(1, 100), AGES, AGES, st.booleans(), st.booleans(), st.booleans()
    ),
    max_size=12,
)


def made(rows: Iterable[tuple[Any, ...]], now_ns: int) -> tuple[list[StoredFile], set[int], set[int]]:
    """Stored files, and the first numbers of those that a channel needs, and of those that are on the disk."""
    files = []
    needed = set()
    on_disk = set()
    seq = 0
    for count, size_bytes, age_s, id_age_s, is_needed, is_on_disk, is_sealed in rows:
        tick = (now_ns - id_age_s * SECOND - id_time_ns(0)) // (id_time_ns(1 << TICK_SHIFT) - id_time_ns(0))
        files.append(
            stored(
                seq,
                seq + count,
                size_bytes=size_bytes,
                last_ns=now_ns - age_s * SECOND,
                last_id=max(0, tick) << TICK_SHIFT,
                is_sealed=is_sealed,
            )
        )
        if is_needed:
            needed.add(seq)
        if is_on_disk:
            on_disk.add(seq)
        seq += count
    return files, needed, on_disk


@given(FILES, st.integers(0, 8), st.integers(0, 300))
def test_retention_lets_nothing_go_that_is_needed_young_or_on_the_disk(
    rows: list[tuple[Any, ...]], keeps_s: int, keeps_bytes: int
) -> None:
    now_ns = 1_700_000_000 * SECOND
    files, needed, on_disk = made(rows, now_ns)
    known = StoredFiles(files)
    log: Any = SimpleNamespace(files=[SimpleNamespace(first_seq=seq) for seq in on_disk])
    topic: Any = SimpleNamespace(
        name=TOPIC, log=log, is_closed=False, is_needed=lambda low, _high: low in needed
    )
    known.attach(TOPIC, log)
    retention = Retention(keeps_s * SECOND, keeps_bytes)
    gone = list(known.unneeded(topic, retention, now_ns, now_ns))
    for file in files:
        age_ns = min(now_ns - file.last_ns, now_ns - id_time_ns(file.last_id))
        newer_bytes = sum(other.size_bytes for other in files if other.first_seq > file.first_seq)
        is_retained = (keeps_s > 0 and age_ns < keeps_s * SECOND) or newer_bytes < keeps_bytes
        is_free = file.first_seq not in needed | on_disk and file.is_sealed
        assert (file in gone) == (is_free and not is_retained)


@pytest.mark.parametrize("is_needed", [False, True], ids=["released", "never stored"])
def test_a_merge_over_files_that_the_store_has_released_drops_no_retained_one(is_needed: bool) -> None:
    """Compaction has merged three files, of which the store has released the middle one: its originals stay."""
    first, last = stored(0, 100, salt=1), stored(200, 300, salt=3)
    known = StoredFiles([first, last])
    merged = SimpleNamespace(
        first_seq=0, end_seq=300, salt=9, is_whole=False, end_offset=70, path=Path(f"{TOPIC}.{0:020d}.log")
    )
    log: Any = SimpleNamespace(files=[merged])
    topic: Any = SimpleNamespace(
        name=TOPIC,
        log=log,
        is_closed=False,
        is_needed=lambda low, high: is_needed and low < 200 and high > 100,
    )
    known.forget_others(TOPIC, log)
    assert known.forget_replaced(topic) == ([first, last] if is_needed else [])
    assert known.replacing(TOPIC, merged.path.name).is_covered is not is_needed
    assert sorted(known) == ([] if is_needed else [first, last])


def test_the_search_for_unneeded_files_lets_others_run_who_may_need_them() -> None:
    count = 30_000
    known = StoredFiles(stored(seq, seq + 1) for seq in range(count))
    log: Any = SimpleNamespace(files=[])
    needed_below = 0
    topic: Any = SimpleNamespace(
        name=TOPIC, log=log, is_closed=False, is_needed=lambda low, _high: low < needed_below
    )
    known.attach(TOPIC, log)

    def seek() -> None:
        nonlocal needed_below
        needed_below = count

    gevent.spawn(seek)
    gone = []
    for file in known.unneeded(topic, Retention(0, 1), 0, 0):
        assert not topic.is_needed(file.first_seq, file.end_seq)
        known.remove(file)
        gone.append(file)
    assert needed_below == count, "no other greenlet could run"
    assert 0 < len(gone) < count
    assert [file.first_seq for file in sorted(known)] == [*range(count - len(gone) - 1), count - 1]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans(), st.booleans()), max_size=20))
def test_the_files_are_in_order_whatever_came_and_went(steps: list[tuple[int, int, bool, bool]]) -> None:
    known = StoredFiles(())
    log: Any = SimpleNamespace(files=[])
    known.attach(TOPIC, log)
    expected: dict[int, StoredFile] = {}
    for first_seq, length, is_new, is_read in steps:
        file = stored(10 * first_seq, 10 * first_seq + length)
        if is_new:
            known.add(file)
            expected[file.first_seq] = file
        else:
            known.remove(file)
            if expected.get(file.first_seq) == file:
                del expected[file.first_seq]
        ordered = sorted(expected.values())
        assert sorted(known) == ordered
        if is_read:
            assert list(known.readable(TOPIC, log)) == [
                each for each in ordered if each.end_seq > each.first_seq
            ]


def test_a_store_keeps_what_the_disk_retains_or_longer() -> None:
    options = limits(
        retention_time_ns=ByTopic(5),
        retention_bytes=ByTopic(100),
        store_retention_time_ns=ByTopic(3),
        store_retention_bytes=ByTopic(1000),
    )
    assert Retention.of(options, TOPIC) == (5, 1000)
    assert not Retention.of(limits(), TOPIC)
