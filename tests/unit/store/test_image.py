"""The state of a store: what rounds say of it, and that a reader finds it whole, or says what is damaged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from nsqd_py.diskqueue.journals.epochs import Epoch
from nsqd_py.diskqueue.records import FileHeader
from nsqd_py.feed.pieces import Begin, Commit, Part, Remove, TopicListing, TopicsListed, Write
from nsqd_py.objects.calls import Missing, Objects
from nsqd_py.objects.opening import open_objects
from nsqd_py.store import rounds
from nsqd_py.store.image import StoreImage, StoreReader
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head, StoredFile, round_name
from nsqd_py.store.rounds import BASE, MARK, TAKEOVER, RoundObject

A, B = "aa" * 8, "bb" * 8
FIRST = "t.00000000000000000000.log"
SECOND = "t.00000000000000000050.log"
CURSOR = "t:c.cursor"
HEADER = FileHeader(7, 50, 0).encode()
SEALED = StoredFile("t", 0, 5, 1000, 1, True, 50, 1, 50, 1, 2, 1)
PREFIX = StoredFile("t", 50, 7, 300, 1, False, 60, 51, 60, 2, 3, 1)
EPOCHS = (Epoch(1, 0),)


def listing(files: dict[str, int], journals: Iterable[str] = (CURSOR,)) -> TopicListing:
    return TopicListing("t", EPOCHS, 60, files, list(journals))


def payload_of(*pieces: Any) -> bytes:
    return b"".join(piece if isinstance(piece, bytes) else rounds.piece_frame(piece) for piece in pieces)


class Store:
    """Rounds in turn, of one writer until another one takes over."""

    def __init__(self) -> None:
        self.image = StoreImage()
        self.number = 0
        self.epoch = 0
        self.writer = ""
        self.take_over(A)

    def take_over(self, writer: str) -> None:
        self.epoch += 1
        self.writer = writer
        self.add(flags=TAKEOVER)

    def next(self, *pieces: Any, flags: int = MARK) -> RoundObject:
        return RoundObject(self.number + 1, self.epoch, self.writer, self.number, flags, payload_of(*pieces))

    def add(self, *pieces: Any, flags: int = MARK) -> None:
        added = self.next(*pieces, flags=flags)
        self.number += 1
        self.image.apply(rounds.decode(self.number, added.encode()))

    def refusal(self, *pieces: Any, **changes: Any) -> str:
        with pytest.raises(BadObject) as refused:
            self.image.apply(self.next(*pieces)._replace(**changes))
        return str(refused.value)


@pytest.fixture
def store() -> Store:
    """A store after its first base: one file is stored, and one is in rounds."""
    store = Store()
    store.add(
        rounds.files_frame([SEALED]),
        listing({FIRST: 1000, SECOND: 0}),
        TopicsListed(),
        Write(SECOND, 0, HEADER + b"one"),
        Begin(CURSOR),
        Part(CURSOR, 0, b"cur"),
        Part(CURSOR, 3, b"sor"),
        Commit(CURSOR),
        flags=BASE | MARK,
    )
    return store


def content_of(store: Store, name: str) -> bytes:
    return b"".join(store.image.tails[name].chunks)


# ---- rounds


def test_a_base(store: Store) -> None:
    image = store.image
    assert image.files == {"t": [SEALED]}
    assert (image.tails[FIRST].salt, image.tails[FIRST].start_offset, list(image.tails[FIRST].chunks)) == (
        5,
        1000,
        [],
    )
    assert content_of(store, SECOND) == HEADER + b"one"
    assert image.tails[SECOND].salt == 7
    assert image.small == {CURSOR: b"cursor"}
    assert (image.mark, image.base, image.epoch, image.next_number) == (2, 2, 1, 3)
    assert image.topics == {"t": listing({FIRST: 1000, SECOND: 0})}


def test_what_grows(store: Store) -> None:
    store.add(Write(SECOND, 67, b"two"), Write(CURSOR, 6, b"s"))
    assert content_of(store, SECOND) == HEADER + b"onetwo"
    assert store.image.small[CURSOR] == b"cursors"


def test_what_is_replaced_and_removed(store: Store) -> None:
    store.add(Begin(CURSOR), Part(CURSOR, 0, b"new"), Commit(CURSOR), Remove(SECOND), Remove(FIRST))
    assert store.image.small == {CURSOR: b"new"}
    assert store.image.tails == {}
    assert store.image.files == {"t": [SEALED]}, "history stays until the store drops it"


def test_log_files_are_those_of_the_store_and_of_rounds(store: Store) -> None:
    first, second = store.image.log_files("t")
    assert (first.name, first.size_bytes, first.stored, first.tail) == (FIRST, 1000, SEALED, None)
    assert (second.name, second.size_bytes, second.stored, second.tail) == (
        SECOND,
        67,
        None,
        store.image.tails[SECOND],
    )
    assert store.image.log_files("other") == []


def test_a_log_file_that_is_continued_by_rounds(store: Store) -> None:
    store.add(
        rounds.files_frame([SEALED, PREFIX]),
        listing({SECOND: 300}),
        Write(SECOND, 300, b"x"),
        flags=BASE | MARK,
    )
    second = store.image.log_files("t")[1]
    assert (second.stored, second.size_bytes) == (PREFIX, 301)
    assert second.tail is not None and second.tail.start_offset == 300


def test_a_stored_file_counts_more_than_what_a_compaction_has_left_of_it(store: Store) -> None:
    compacted = FileHeader(9, 0, 0).encode()
    store.add(Begin(FIRST), Part(FIRST, 0, compacted), Commit(FIRST))
    assert store.image.tails[FIRST].salt == 9
    assert store.image.log_files("t")[0].stored == SEALED
    assert store.image.log_files("t")[0].tail is None


def test_files_come_and_go(store: Store) -> None:
    other = SEALED._replace(topic="u")
    store.add(rounds.files_frame([other, PREFIX]))
    assert store.image.files == {"t": [SEALED, PREFIX], "u": [other]}
    store.add(rounds.files_frame([PREFIX], [other.name, SEALED.name, "files/unknown"]))
    assert store.image.files == {"t": [PREFIX]}


def test_a_topic_that_is_deleted(store: Store) -> None:
    store.add(TopicListing("t"))
    assert (store.image.tails, store.image.small, store.image.topics) == ({}, {}, {})


def test_a_topic_that_is_listed_again(store: Store) -> None:
    store.add(listing({SECOND: 0}, ["t:d.cursor"]), Write(SECOND, 0, HEADER))
    assert list(store.image.tails) == [SECOND]
    assert store.image.small == {}


# ---- bases that are not complete, and other writers


def test_a_base_counts_when_it_is_complete(store: Store) -> None:
    store.add(Begin(CURSOR), Part(CURSOR, 0, b"new"), flags=BASE)
    assert store.image.small == {CURSOR: b"cursor"}
    assert (store.image.mark, store.image.base) == (2, 2)
    store.add(Commit(CURSOR))
    assert store.image.small == {CURSOR: b"new"}
    assert (store.image.mark, store.image.base, store.image.files) == (4, 3, {})


def test_a_base_that_is_not_complete_does_not_count_after_a_takeover(store: Store) -> None:
    store.add(Begin(CURSOR), Part(CURSOR, 0, b"new"), flags=BASE)
    store.take_over(B)
    assert store.image.small == {CURSOR: b"cursor"}
    store.add(Write(CURSOR, 6, b"s"))
    assert store.image.small == {CURSOR: b"cursors"}
    assert store.image.mark == 5


def test_what_a_writer_began_before_a_takeover_is_not_continued(store: Store) -> None:
    store.add(Begin(CURSOR), flags=0)
    store.take_over(B)
    assert "was not begun" in store.refusal(Part(CURSOR, 0, b"x"))


def test_rounds_of_other_writers_are_refused(store: Store) -> None:
    store.take_over(B)
    for changes in (
        {"writer": A},
        {"epoch": 1, "writer": A},
        {"epoch": 1},
        {"epoch": 3},
        {"number": 9},
        {"flags": TAKEOVER | MARK},
    ):
        text = store.refusal(**changes)
        assert text.startswith("rounds/000000000000000")


# ---- rounds that do not fit


@pytest.mark.parametrize(
    "pieces",
    [
        [Write(SECOND, 66, b"x")],
        [Write(SECOND, 68, b"x")],
        [Write("u.00000000000000000000.log", 5, b"x")],
        [Write(SECOND, 0, b"short")],
        [Write(CURSOR, 7, b"x")],
        [Part(CURSOR, 0, b"x")],
        [Commit(CURSOR)],
        [Begin(CURSOR), Part(CURSOR, 1, b"x")],
        [Write("../x.cursor", 0, b"x")],
        [Write(".hidden", 0, b"x")],
        [listing({FIRST: 999})],
    ],
)
def test_a_round_that_does_not_continue_the_others(store: Store, pieces: list[Any]) -> None:
    text = store.refusal(*pieces)
    assert text.startswith("rounds/0000000000000003 does not continue the rounds before it: ")
    assert store.image.next_number == 4


def test_after_such_a_round_only_a_base_counts(store: Store) -> None:
    store.refusal(Commit(CURSOR))
    store.number += 1
    store.add(Write(CURSOR, 6, b"lost"), rounds.files_frame([PREFIX]))
    assert store.image.small == {CURSOR: b"cursor"}
    assert store.image.mark == 2
    assert store.image.files == {"t": [SEALED, PREFIX]}
    store.add(Write(CURSOR, 0, b"new"), flags=BASE | MARK)
    assert (store.image.small, store.image.mark) == ({CURSOR: b"new"}, 5)


def test_logs_go_on_behind_a_hole_after_damage(store: Store) -> None:
    before = store.image.tails[SECOND].end_offset
    store.image.skip()
    store.number += 1
    store.add(Write(SECOND, before + 10, b"after"), Remove(SECOND), Write(CURSOR, 6, b"lost"))
    store.add(Begin(CURSOR), Part(CURSOR, 0, b"whole"), Commit(CURSOR))
    tail = store.image.tails[SECOND]
    assert b"".join(tail.chunks).endswith(bytes(10) + b"after")
    assert store.image.holes == {SECOND: [(before, before + 10)]}
    assert store.image.small == {CURSOR: b"whole"}
    store.add(Write(SECOND, before + 12, b"terall"))  # as the base after an error has it
    assert b"".join(tail.chunks).endswith(b"afterall")
    assert store.image.is_broken


def test_a_topic_that_is_made_again_after_damage_has_no_messages_of_the_old_one(store: Store) -> None:
    store.image.skip()
    store.number += 1
    store.add(TopicListing("t", (Epoch(9, 0),), 0, {}, []))
    assert (store.image.tails, store.image.small) == ({}, {})


def test_what_is_there_of_a_damaged_base_counts(store: Store) -> None:
    third = "t.00000000000000000070.log"
    header = FileHeader(9, 70, 0).encode()
    store.add(rounds.files_frame([SEALED]), listing({FIRST: 0}), Write(third, 0, header), flags=BASE)
    store.image.skip()
    store.number += 1
    store.add(Write(third, len(header), b"more"))
    assert [source.name for source in store.image.log_files("t")] == [FIRST, SECOND, third]
    assert store.image.tails[third].end_offset == len(header) + 4
    assert store.image.small == {CURSOR: b"cursor"}


# ---- reading


@pytest.fixture
def objects(tmp_path: Any) -> Objects:
    return open_objects(f"file://{tmp_path}/store")


def put(objects: Objects, store: Store, *pieces: Any, flags: int = MARK) -> None:
    added = store.next(*pieces, flags=flags)
    store.number += 1
    objects.create(added.name, added.encode())


def put_head(objects: Objects, base: int) -> None:
    objects.delete([HEAD_NAME])
    objects.create(HEAD_NAME, Head("s", 1, A, "a:4150", base).encode())


def store_with(objects: Objects, count: int) -> Store:
    """Put a head, a takeover, a base, and rounds that make the cursor `0123…`."""
    store = Store()
    put_head(objects, 2)
    store.number = 0
    put(objects, store, flags=TAKEOVER)
    put(objects, store, Write(CURSOR, 0, b"0"), flags=BASE | MARK)
    for index in range(1, count):
        put(objects, store, Write(CURSOR, index, b"%d" % (index % 10)))
    return store


def test_a_reader_goes_on(objects: Objects) -> None:
    store = store_with(objects, 30)
    reader = StoreReader(objects)
    assert reader.refresh()
    assert reader.image.small[CURSOR] == b"0123456789" * 3
    assert not reader.refresh()
    put(objects, store, Write(CURSOR, 30, b"!"))
    assert reader.refresh()
    assert reader.image.small[CURSOR].endswith(b"9!")


def test_a_reader_that_fell_behind_begins_at_the_new_base(objects: Objects) -> None:
    store = store_with(objects, 3)
    reader = StoreReader(objects)
    reader.refresh()
    for _ in range(3):
        put(objects, store, Write(CURSOR, 0, b"new"), flags=BASE | MARK)
    objects.delete([round_name(number) for number in range(1, store.number)])
    put_head(objects, store.number)
    assert reader.refresh()
    assert reader.image.small[CURSOR] == b"new"


def test_there_is_no_store(objects: Objects) -> None:
    with pytest.raises(Missing, match=r"there is no store at file:.*: head\.json is missing"):
        StoreReader(objects).refresh()


def test_the_base_is_missing(objects: Objects) -> None:
    store_with(objects, 3)
    objects.delete([round_name(2)])
    with pytest.raises(BadObject, match="rounds/0000000000000002 is missing"):
        StoreReader(objects).refresh()


def test_the_head_names_something_else(objects: Objects) -> None:
    store_with(objects, 3)
    put_head(objects, 3)
    with pytest.raises(BadObject, match="rounds/0000000000000003 is not the base that head"):
        StoreReader(objects).refresh()


def test_a_damaged_round_is_named_and_left_out(objects: Objects) -> None:
    store = store_with(objects, 5)
    objects.delete([round_name(4)])
    objects.create(round_name(4), b"<html>")
    with pytest.raises(BadObject, match="rounds/0000000000000004 is damaged"):
        StoreReader(objects).refresh()
    damage: list[str] = []
    reader = StoreReader(objects, lambda error: damage.append(str(error)))
    reader.refresh()
    assert reader.image.small[CURSOR] == b"01"
    assert (reader.image.mark, reader.image.next_number) == (3, 7)
    put(objects, store, Write(CURSOR, 0, b"new"), flags=BASE | MARK)
    reader.refresh()
    assert reader.image.small[CURSOR] == b"new"
    assert damage == ["rounds/0000000000000004 is damaged: it has only 6 bytes"]
