"""What the offsets of a stream remember, and what they forget."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow")

from nsq_spark.archive.storage import Entry
from nsq_spark.source.offsets import FINISHED, MOST_MARKS, BadOffset, Offset, Portion, byte_mark, is_byte_mark, next_byte

AGE_NS = 1000
MESSAGE = (4096 << 20) + 7  # the eighth message of a record at byte 4096


def entry(name: str, modified_ns: int = 0) -> Entry:
    return Entry(f"/archive/{name}", 100, modified_ns)


def read(some: list[Entry], until: int = FINISHED) -> list[Portion]:
    return [Portion(one.path, one.size_bytes, -1, until) for one in some]


def test_through_json_and_back() -> None:
    entries = [entry(f"ä{number}", number) for number in range(5)]
    batch = [Portion(one.path, 100, 5, until) for one, until in zip(entries, [9, FINISHED, -1, 0, 2**40], strict=True)]
    offset = Offset().advanced(batch, entries, [entries[1]], AGE_NS)
    text = json.dumps(offset.to_json())
    assert Offset.of_json(json.loads(text)) == offset
    assert json.dumps(Offset.of_json(json.loads(text)).to_json()) == text


OTHERS = [{}, {"version": 2}, {"version": 1, "batch": "?", "horizon": [0, ""], "marks": ""}]


@pytest.mark.parametrize("document", OTHERS)
def test_a_checkpoint_of_another_version(document: dict[str, object]) -> None:
    with pytest.raises(BadOffset, match="the checkpoint has"):
        Offset.of_json(document)


def test_what_is_done_has_a_mark() -> None:
    done, half, new = entry("done"), entry("half"), entry("new")
    offset = Offset().advanced(read([done]) + read([half], 17), [done, half, new], [half], AGE_NS)
    assert [offset.mark_of(one) for one in (done, half, new)] == [FINISHED, 17, None]


def test_what_is_much_older_than_the_newest_is_done_without_a_mark() -> None:
    old, late, new = entry("old", 10), entry("late", 20), entry("new", 5000)
    offset = Offset().advanced(read([old, new]), [old, new], [], AGE_NS)
    assert len(offset.marks) == 1
    assert [offset.mark_of(one) for one in (old, late, new)] == [FINISHED, FINISHED, FINISHED]
    in_time = entry("in time", 4500)
    assert offset.mark_of(in_time) is None


def test_what_waits_is_not_forgotten_however_old_it_is() -> None:
    old, waits, new = entry("a", 10), entry("b", 10), entry("new", 5000)
    offset = Offset().advanced(read([old]), [old, waits, new], [waits], AGE_NS)
    assert [offset.mark_of(one) for one in (old, waits, new)] == [FINISHED, None, None]


def test_files_that_are_gone_are_forgotten() -> None:
    first, second = entry("1"), entry("2")
    offset = Offset().advanced(read([first]), [first], [], AGE_NS).advanced(read([second]), [second], [], AGE_NS)
    assert len(offset.marks) == 1


def test_thousands_of_files_take_little_room() -> None:
    entries = [entry(f"orders.host.2025-11-20_10-{number:05d}.framed", number) for number in range(5000)]
    offset = Offset().advanced(read(entries), entries, [], 10**9)
    assert len(offset.marks) == 5000
    later = offset.advanced(read(entries[:1]), entries, [], 10**9)
    assert len(json.dumps(later.to_json())) < 60_000
    assert len(json.dumps(offset.to_json())) < 90_000


def test_there_is_a_most_of_what_is_remembered() -> None:
    entries = [entry(f"{number:06d}", number) for number in range(MOST_MARKS + 500)]
    offset = Offset().advanced(read(entries), entries, [], 10**9)
    assert len(offset.marks) == MOST_MARKS
    assert all(offset.mark_of(one) == FINISHED for one in entries)


def test_marks_of_bytes_and_of_messages() -> None:
    assert is_byte_mark(byte_mark(4096)) and next_byte(byte_mark(4096)) == 4096
    assert not is_byte_mark(MESSAGE) and next_byte(MESSAGE) == 4096
