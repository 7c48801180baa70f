"""Claims and owners over objects in a directory, whose answers may be lost; the model has the schedules of several of them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from google_crc32c import value

from nsqd_py.errors import StartError
from nsqd_py.feed.pieces import Begin, Commit, Write
from nsqd_py.objects.calls import Changed, Exists, Missing, Objects, StoreError, StoreRefused
from nsqd_py.objects.opening import open_objects
from nsqd_py.store import rounds
from nsqd_py.store.checking import check_store
from nsqd_py.store.image import StoreReader, read_head
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head, StoredFile, round_name
from nsqd_py.store.ownership import CLAIMS_FILE, KEEP_NS, Claims, Owner, Superseded, claim
from nsqd_py.store.reading import read_state

CURSOR = "t:c.cursor"
OTHER = "t:d.cursor"
FILE = StoredFile("t", 0, 5, 3, 1, True, 50, 1, 50, 1, 2, 1)


@dataclass
class FaultyObjects(Objects):
    """Objects whose next calls fail: `lost` has the names of calls that happen without an answer, `failed` of others.

    conflicts  number of creates that are refused although there is no such object
    """

    objects: Objects
    lost: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    conflicts: int = 0

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        if name in ("objects", "lost", "failed", "calls", "conflicts") or name.startswith("__"):
            return own(self, name)
        return lambda *arguments: own(self, "_call")(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> Any:
        self.calls.append(name)
        if name == "create" and self.conflicts:
            self.conflicts -= 1
            raise Exists(f"{arguments[0]} exists already")
        if name in self.failed:
            self.failed.remove(name)
            raise StoreError("no answer")
        result = getattr(self.objects, name)(*arguments)
        if name in self.lost:
            self.lost.remove(name)
            raise StoreError("the answer was lost")
        return result


@dataclass
class World:
    """A store, and the data paths of nsqds."""

    path: Path
    now_ns: int = 1

    def __post_init__(self) -> None:
        self.objects = FaultyObjects(open_objects(f"file://{self.path}/store"))

    def claims(self, name: str = "data") -> Claims:
        (self.path / name).mkdir(exist_ok=True)
        return Claims(self.path / name)

    def claim(self, name: str = "data", on_damage: Callable[[BadObject], None] | None = None) -> Owner:
        return claim(
            self.objects,
            f"{name}:4150",
            self.claims(name),
            lambda _: None,
            on_damage,
            clock=lambda: self.now_ns,
        )

    def state(self) -> bytes:
        reader = StoreReader(self.objects)
        reader.refresh()
        return bytes(reader.image.small.get(CURSOR, b""))

    def everything(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.path)): path.read_bytes()
            for path in self.path.rglob("store/**/*")
            if path.is_file()
        }

    def names(self, prefix: str) -> list[str]:
        return sorted(listed.name for listed in self.objects.list(prefix))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def wrote(content: bytes, offset: int = 0) -> bytes:
    return rounds.piece_frame(Write(CURSOR, offset, content))


# ---- claims


def test_the_first_claim_makes_the_store(world: World) -> None:
    owner = world.claim()
    head = read_head(world.objects)
    assert head == owner.head
    assert head is not None and (head.epoch, head.node, head.base) == (1, "data:4150", 0)
    assert world.claims().is_mine(head)
    assert world.names("probe") == []
    assert world.names("rounds") == [round_name(1)]


def test_a_claim_finds_what_was_added(world: World) -> None:
    before = world.claim()
    assert before.append(wrote(b"base"), is_mark=True, is_base=True) == 2
    before.move_head()
    before.append(wrote(b"!", 4), is_mark=True)
    after = world.claim()
    assert after.epoch == 2
    assert after.image is not None and after.image.small == {CURSOR: b"base!"}
    assert after.next_number == 5


def test_a_base_that_the_head_does_not_name_is_found(world: World) -> None:
    before = world.claim()
    before.append(wrote(b"base"), is_mark=True, is_base=True)
    after = world.claim()
    assert after.is_head_behind
    after.move_head()
    assert after.head.base == 2


def test_another_data_path_is_told_from_the_own_one(world: World) -> None:
    world.claim("a")
    head = read_head(world.objects)
    assert head is not None
    assert world.claims("a").is_mine(head)
    assert not world.claims("b").is_mine(head)
    world.claim("b")
    head = read_head(world.objects)
    assert head is not None
    assert not world.claims("a").is_mine(head)


def test_a_claim_that_may_not_be_made_changes_nothing(world: World) -> None:
    before = world.claim("a").head

    def check(head: Head | None) -> None:
        assert head == before
        raise StartError("another nsqd owns it")

    with pytest.raises(StartError):
        claim(world.objects, "b:4150", world.claims("b"), check)
    assert read_head(world.objects) == before
    assert world.claims("b").writers == []


@pytest.mark.parametrize("fault", ["lost", "failed"])
def test_after_a_claim_without_an_answer_the_data_path_owns_the_store(world: World, fault: str) -> None:
    """A crash between the note in the data path and the answer must not lock it out."""
    world.claim()
    # The third swap is that of the head, after two that try the conditions.
    original = world.objects.objects.swap
    count = 0

    def swap(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3 and fault == "failed":
            raise StoreError("no answer")
        result = original(*arguments)
        if count == 3:
            raise StoreError("the answer was lost")
        return result

    world.objects.objects.swap = swap  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        world.claim()
    head = read_head(world.objects)
    assert head is not None
    assert head.epoch == (2 if fault == "lost" else 1)
    assert world.claims().is_mine(head)
    assert world.claim().epoch == head.epoch + 1
    assert len(world.claims().writers) == 1, "earlier claims are forgotten"


def test_a_damaged_file_of_claims_has_none(world: World, tmp_path: Path) -> None:
    world.claim()
    path = tmp_path / "data" / CLAIMS_FILE
    path.write_bytes(path.read_bytes().replace(b"w", b"v", 1))
    assert world.claims().writers == []


class WithoutConditions(Objects):
    """A server that ignores the conditions of one kind of write."""

    def __init__(self, objects: Objects, call: str) -> None:
        self._objects = objects
        self._ignored = call
        for name in ("get", "get_range", "put_file", "delete", "list"):
            setattr(self, name, getattr(objects, name))

    def create(self, name: str, data: bytes) -> Any:
        if self._ignored == "create":
            self._objects.delete([name])
        return self._objects.create(name, data)

    def swap(self, name: str, data: bytes, version: Any) -> Any:
        if self._ignored == "swap":
            _, version = self._objects.get(name)
        return self._objects.swap(name, data, version)


@pytest.mark.parametrize("call", ["create", "swap"])
def test_a_store_without_conditional_writes_is_refused(world: World, call: str) -> None:
    objects = WithoutConditions(world.objects, call)
    with pytest.raises(StoreRefused, match="has no conditional writes"):
        claim(objects, "a:4150", world.claims(), lambda _: None)
    assert read_head(world.objects) is None


def test_a_conflict_is_no_proof_that_an_object_exists(world: World) -> None:
    """S3 answers 409 to a create that races another request, which obstore reports as 412."""
    world.objects.conflicts = 1
    with pytest.raises(StoreError, match="probe/.* could not be created: a conflict, but it is not there"):
        world.claim()
    assert world.claim().epoch == 1


# ---- rounds


@pytest.mark.parametrize("fault", ["lost", "failed"])
def test_a_round_without_an_answer_is_settled(world: World, fault: str) -> None:
    """Nothing is asked before the next attempt: where a request hangs, the next one hangs as long."""
    owner = world.claim()
    getattr(world.objects, fault).append("create")
    world.objects.calls.clear()
    with pytest.raises(
        StoreError, match=r"rounds/0000000000000002 could not be created: (no answer|the answer)"
    ):
        owner.append(wrote(b"a"), is_mark=True)
    assert world.objects.calls == ["create"]
    assert not owner.is_settled
    with pytest.raises(ValueError, match="rounds/0000000000000002 is not settled"):
        owner.append(wrote(b"b"), is_mark=True)
    owner.settle()  # it may meet itself
    assert owner.append(wrote(b"b", 1), is_mark=True) == 3
    assert world.state() == b"ab"


def test_a_round_is_not_settled_while_the_store_does_not_answer(world: World) -> None:
    owner = world.claim()
    world.objects.lost.append("create")
    with pytest.raises(StoreError):
        owner.append(wrote(b"a"), is_mark=True)
    world.objects.failed.append("get")
    with pytest.raises(StoreError):
        owner.settle()
    assert not owner.is_settled
    owner.settle()
    assert owner.is_settled
    owner.settle()
    assert owner.next_number == 3


def test_an_owner_that_was_superseded_adds_nothing(world: World) -> None:
    before = world.claim("a")
    before.append(wrote(b"a"), is_mark=True)
    world.claim("b")
    for act in (lambda: before.append(wrote(b"b", 1), is_mark=True), before.settle, before.check):
        with pytest.raises(Superseded, match="belongs to b:4150 since its epoch 2") as superseded:
            act()
        assert superseded.value.head.node == "b:4150"
    assert world.state() == b"a"


def test_an_owner_that_was_superseded_moves_no_head(world: World) -> None:
    before = world.claim("a")
    before.append(wrote(b"a"), is_mark=True, is_base=True)
    after = world.claim("b")
    for act in (before.move_head, before.close):
        with pytest.raises(Superseded):
            act()
    assert read_head(world.objects) == after.head


def test_a_foreign_object_in_the_place_of_a_round(world: World) -> None:
    owner = world.claim()
    world.objects.create(round_name(2), b"<html>")
    with pytest.raises(
        BadObject, match="rounds/0000000000000002 is not the round that this nsqd has written"
    ):
        owner.append(wrote(b"a"), is_mark=True)


# ---- the head


@pytest.mark.parametrize("fault", ["lost", "failed"])
def test_the_head_moves_once(world: World, fault: str) -> None:
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=False, is_base=True)
    assert not owner.is_head_behind
    owner.move_head()
    assert owner.head.base == 0
    owner.append(wrote(b"b", 1), is_mark=True)
    assert owner.is_head_behind
    getattr(world.objects, fault).append("swap")
    if fault == "failed":
        with pytest.raises(StoreError, match="head.json could not be moved: no answer"):
            owner.move_head()
        assert owner.is_head_behind
    owner.move_head()
    assert not owner.is_head_behind
    assert read_head(world.objects) == owner.head
    assert owner.head.base == 2


def test_a_writer_whose_head_was_deleted_goes_on_when_it_is_back(world: World) -> None:
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=True, is_base=True)
    world.objects.delete([HEAD_NAME])
    for act in (owner.look, owner.move_head, owner.close):
        with pytest.raises(
            StoreError, match=r"head.json is missing in .*, put it back: \{ \"format\": 1, "
        ) as error:
            act()
    sentence = str(error.value)
    content = sentence[sentence.index("{") :].encode()
    assert Head.decode(content) == owner.head
    world.objects.create(HEAD_NAME, content)
    owner.look()
    with pytest.raises(StoreError, match="could not be moved"):  # it has another version now
        owner.move_head()
    owner.move_head()
    assert read_head(world.objects) == owner.head
    assert owner.head.base == 2


def test_a_look_at_the_head_finds_who_has_taken_over(world: World) -> None:
    before = world.claim("a")
    before.look()
    world.claim("b")
    with pytest.raises(Superseded, match="belongs to b:4150 since its epoch 2"):
        before.look()


@pytest.mark.parametrize("left", ["rounds", "files"])
def test_a_store_without_its_head_is_refused_and_nothing_is_written(
    world: World, tmp_path: Path, left: str
) -> None:
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=True, is_base=True)
    path = tmp_path / "log"
    path.write_bytes(b"log")
    world.objects.put_file(FILE.name, path, 3)
    gone = {"rounds": "files", "files": "rounds"}[left]
    world.objects.delete([HEAD_NAME, *world.names(gone)])
    before = world.everything()
    for name in ("data", "other"):
        with pytest.raises(BadObject, match=f"head.json is missing in .*, which has {left}/.*docs/store.md"):
            world.claim(name)
    assert world.everything() == before
    assert world.claims().writers == [owner.writer]


def test_a_head_that_another_claim_makes_at_this_moment_is_not_missing(world: World) -> None:
    original = world.objects.objects.list
    made: list[Owner] = []

    def find(prefix: str) -> Any:
        world.objects.objects.list = original  # type: ignore[method-assign]
        made.append(world.claim("b"))
        return original(prefix)

    world.objects.objects.list = find  # type: ignore[method-assign]
    assert world.claim("a").epoch == 2
    assert made[0].epoch == 1


def test_the_way_back_without_a_head_that_docs_describe(world: World) -> None:
    """Any head of a high epoch does, with the store and the writer of the data path."""
    owner = world.claim()
    for content in (b"a", b"b"):
        owner.append(wrote(content), is_mark=True, is_base=True)
        owner.move_head()
    world.objects.delete([HEAD_NAME, round_name(2)])
    head = Head(world.claims().store, 1_000_000, world.claims().writers[0], "by hand")
    world.objects.create(HEAD_NAME, head.encode())
    assert world.claims().is_mine(head)
    after = world.claim(on_damage=lambda _: None)
    assert (after.epoch, after.next_number) == (1_000_001, 5)
    assert after.image is not None and after.image.small == {CURSOR: b"b"}
    after.move_head()
    assert after.head.base == 3
    assert world.claim().epoch == 1_000_002


def test_the_head_says_that_the_writer_has_stopped(world: World) -> None:
    owner = world.claim()
    owner.close()
    owner.close()
    head = read_head(world.objects)
    assert head is not None and head.closed
    assert not world.claim().head.closed


# ---- damage


def flip_head(world: World, word: bytes) -> bytes:
    """Flip a bit in the last byte of the value of a field of the head; return the damaged content."""
    path = world.path / "store" / HEAD_NAME
    content = bytearray(path.read_bytes())
    at = content.index(b",", content.index(b'"%b"' % word)) - 2
    content[at] ^= 1
    path.write_bytes(content)
    return bytes(content)


FIELDS = [b"store", b"epoch", b"writer", b"node", b"base"]


@pytest.mark.parametrize("word", FIELDS)
def test_a_writer_replaces_a_damaged_head(world: World, word: bytes) -> None:
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=True, is_base=True)
    for act in (owner.look, owner.close):
        damaged = flip_head(world, word)
        with pytest.raises(BadObject, match="damaged"):
            read_head(world.objects)
        try:
            act()
        except StoreError:  # a swap is repeated
            act()
        assert read_head(world.objects) == owner.head
        assert damaged in [path.read_bytes() for path in (world.path / "store/aside").iterdir()]
        for path in (world.path / "store/aside").iterdir():
            path.unlink()
    assert len(owner.mended) == 2


def test_a_writer_replaces_no_damaged_head_of_a_later_one(world: World) -> None:
    owner = world.claim()
    world.claim("other")
    damaged = flip_head(world, b"epoch")
    with pytest.raises(BadObject, match=r"head.json is damaged.*, and rounds/.*2 is another writer's"):
        owner.look()
    assert world.objects.get(HEAD_NAME)[0] == damaged


def spoil_head(world: World) -> None:
    """Flip two bits of the head, which its checksum cannot correct."""
    flip_head(world, b"store")
    flip_head(world, b"writer")


@pytest.mark.parametrize("word", FIELDS)
def test_a_claim_corrects_a_flipped_bit_of_the_head(world: World, word: bytes) -> None:
    owner = world.claim()
    before = owner.head
    flip_head(world, word)
    found: list[BadObject] = []
    after = world.claim("other", on_damage=found.append)
    assert len(found) == 1
    assert str(found[0]).endswith("; set aside, and written again from its checksum")
    assert (after.head.store, after.epoch) == (before.store, before.epoch + 1)


def test_each_flipped_bit_of_a_head_is_corrected_or_of_no_effect() -> None:
    head = Head("ab" * 8, 3, "cd" * 8, "a:4150", 18, closed=True)
    data = head.encode()
    without_effect = 0
    for place in range(len(data)):
        for bit in range(8):
            changed = data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]
            try:
                assert Head.decode(changed) == head
                without_effect += 1
            except BadObject:
                assert Head.corrected(changed) == head, place
    assert without_effect < 150, "of 1,900"
    assert Head.corrected(b"garbage") is None


def test_a_claim_of_the_same_data_path_writes_a_damaged_head_from_the_rounds(world: World) -> None:
    owner = world.claim()
    for content in (b"a", b"b"):
        owner.append(wrote(content), is_mark=True, is_base=True)
        owner.move_head()
    spoil_head(world)
    found: list[BadObject] = []
    with pytest.raises(BadObject, match="--restore-from and an empty data path"):
        world.claim("other", on_damage=found.append)
    after = world.claim(on_damage=found.append)
    assert len(found) == 1
    assert str(found[0]).endswith("; set aside, and written again from the rounds")
    assert after.epoch > owner.epoch + 1
    assert after.head.base == 3
    assert after.image is not None and after.image.small == {CURSOR: b"b"}
    with pytest.raises(Superseded):
        owner.look()


def test_a_restore_writes_a_damaged_head_from_the_rounds(world: World) -> None:
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=True, is_base=True)
    spoil_head(world)
    after = claim(world.objects, "b", world.claims("b"), lambda _: None, lambda _: None, is_restoring=True)
    assert after.image is not None and after.image.small == {CURSOR: b"a"}


def test_a_damaged_list_of_claims_claims_nothing(world: World) -> None:
    """The epochs of the logs decide then: see `Permission`."""
    owner = world.claim()
    path = world.path / "data" / CLAIMS_FILE
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)
    assert not world.claims().is_mine(owner.head)
    path.unlink()
    assert not world.claims().is_mine(owner.head)


def test_a_head_of_an_earlier_version_is_read_and_replaced_by_one_without_its_data_path(world: World) -> None:
    before = world.claim()
    fields = {"format": 1, **asdict(before.head), "member": "ab" * 8}
    checksum = value(json.dumps(fields, indent=1).removesuffix("\n}").encode())
    put_head(world, json.dumps({**fields, "crc32c": f"{checksum:08x}"}, indent=1).encode() + b"\n")
    assert read_head(world.objects) == before.head
    assert world.claim().epoch == 2
    assert b"member" not in world.objects.get(HEAD_NAME)[0]


def damaged_store(world: World) -> None:
    """Make the second of three rounds after a base unreadable."""
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=True, is_base=True)
    owner.move_head()
    for index in range(1, 4):
        owner.append(wrote(b"a", index), is_mark=True)
    world.objects.delete([round_name(4)])


@pytest.mark.parametrize("is_there", [True, False])
def test_a_damaged_or_missing_round_is_named(world: World, is_there: bool) -> None:
    damaged_store(world)
    if is_there:
        world.objects.create(round_name(4), b"<html>")
    sentence = "rounds/0000000000000004 is " + ("damaged: it has only 6 bytes" if is_there else "missing")
    with pytest.raises(BadObject, match=sentence):
        world.claim()
    with pytest.raises(BadObject, match=sentence):
        world.claim()
    found: list[str] = []
    owner = world.claim(on_damage=lambda error: found.append(str(error)))
    assert len(found) == 1 and found[0].startswith(sentence)
    assert owner.image is not None and owner.image.small == {CURSOR: b"aa"}
    assert owner.next_number == 7
    aside = world.names("aside")
    assert [world.objects.get(name)[0] for name in aside] == [b"<html>"] * is_there
    owner.append(wrote(b"new"), is_mark=True, is_base=True)
    owner.move_head()
    assert world.state() == b"new"
    assert world.claim().epoch == owner.epoch + 1


def test_the_base_is_missing(world: World) -> None:
    damaged_store(world)
    world.objects.delete([round_name(number) for number in range(2, 6)])
    with pytest.raises(BadObject, match="rounds/0000000000000002 is missing"):
        world.claim()


@pytest.mark.parametrize("is_there", [True, False])
def test_the_base_before_counts_if_the_last_one_is_damaged(world: World, is_there: bool) -> None:
    owner = world.claim()
    owner.append(wrote(b"first"), is_mark=True, is_base=True)
    owner.append(wrote(b"!", 5), is_mark=True)
    owner.append(wrote(b"second"), is_mark=True, is_base=True)
    owner.move_head()
    owner.append(rounds.piece_frame(Begin(OTHER)) + rounds.piece_frame(Commit(OTHER)), is_mark=True)
    world.objects.delete([round_name(4)])
    if is_there:
        world.objects.create(round_name(4), b"<html>")
    found: list[str] = []
    after = world.claim(on_damage=lambda error: found.append(str(error)))
    assert len(found) == 1 and found[0].startswith(round_name(4))
    assert after.image is not None and after.image.is_broken
    assert after.image.small == {CURSOR: b"first!", OTHER: b""}
    assert after.next_number == 7


def test_a_gap_is_one_sentence(world: World) -> None:
    damaged_store(world)
    world.objects.create(round_name(50_000), b"<html>")
    found: list[str] = []
    owner = world.claim(on_damage=lambda error: found.append(str(error)))
    assert found == [
        "rounds/0000000000000004 is missing: it was deleted or lost",
        "rounds/0000000000000006 to rounds/000000000000c34f are missing: they were deleted or lost",
        "rounds/000000000000c350 is damaged: it has only 6 bytes; set aside",
    ]
    assert owner.next_number == 50_002


@pytest.mark.parametrize("number", [1_000_000, (1 << 64) - 1])
def test_a_foreign_object_far_behind_all_rounds_is_moved_aside(world: World, number: int) -> None:
    world.claim()
    world.objects.create(round_name(number), b"<html>")
    with pytest.raises(BadObject, match=round_name(number)):
        world.claim()
    found: list[str] = []
    owner = world.claim(on_damage=lambda error: found.append(str(error)))
    assert found == [f"{round_name(number)} is damaged: it has only 6 bytes; set aside"]
    assert owner.image is not None and not owner.image.is_broken
    assert owner.next_number == 3
    assert round_name(number) not in world.names("rounds")
    assert world.objects.get(world.names("aside")[-1])[0] == b"<html>"


def test_a_takeover_that_is_missing(world: World) -> None:
    world.claim()
    world.claim().append(wrote(b"a"), is_mark=True, is_base=True)
    world.objects.delete([round_name(2)])
    found: list[str] = []
    owner = world.claim(on_damage=lambda error: found.append(str(error)))
    assert len(found) == 1
    assert owner.image is not None and owner.image.small == {CURSOR: b"a"} and not owner.image.is_broken


def test_a_round_that_is_listed_and_cannot_be_read_is_no_damage(world: World) -> None:
    """A proxy answers 404 for a moment."""
    damaged_store(world)
    world.objects.create(round_name(4), b"<html>")
    with (
        mock.patch("nsqd_py.store.reading.read_rounds", return_value=[]),
        pytest.raises(StoreError, match="list"),
    ):
        world.claim(on_damage=lambda error: pytest.fail(str(error)))


@pytest.mark.parametrize("content", [b"[]", b"7", b'"head"'])
def test_a_head_that_is_no_json_object(world: World, content: bytes) -> None:
    world.claim()
    put_head(world, content)
    with pytest.raises(BadObject, match=r"head.json is damaged or foreign: it is no JSON object$"):
        world.claim()


def test_a_head_that_is_damaged(world: World) -> None:
    world.claim()
    world.objects.delete([HEAD_NAME])
    world.objects.create(HEAD_NAME, json.dumps({"format": 1}).encode())
    with pytest.raises(BadObject, match="head.json is damaged or foreign"):
        world.claim()


# ---- an earlier version of the head is put back


def put_head(world: World, content: bytes) -> None:
    (world.path / "store" / HEAD_NAME).write_bytes(content)


def rolled_back(world: World, name: str = "data") -> Owner:
    """Claim a store twice, the second time in this data path, and put the first head back. Return the second owner."""
    world.claim().append(wrote(b"a"), is_mark=True, is_base=True)
    content, _ = world.objects.get(HEAD_NAME)
    owner = world.claim(name)
    owner.append(wrote(b"b"), is_mark=True, is_base=True)
    owner.move_head()
    put_head(world, content)
    return owner


@pytest.mark.parametrize("act", [Owner.look, Owner.close])
def test_a_writer_replaces_a_head_that_was_rolled_back(world: World, act: Callable[[Owner], None]) -> None:
    owner = rolled_back(world)
    with suppress(StoreError):  # a swap is repeated
        act(owner)
    act(owner)
    assert read_head(world.objects) == owner.head
    assert owner.mended == deque(
        [
            "head.json has the epoch 1, not 2: an earlier version of it was put back; set aside, and written again"
        ]
    )
    owner.append(wrote(b"!", 1), is_mark=True)
    assert world.state() == b"b!"


def test_a_writer_replaces_a_head_with_an_earlier_base(world: World) -> None:
    """Rounds below the later one are deleted an hour after the head has moved, and then the earlier one would name nothing."""
    owner = world.claim()
    content, _ = world.objects.get(HEAD_NAME)
    owner.append(wrote(b"a"), is_mark=True, is_base=True)
    owner.move_head()
    put_head(world, content)
    owner.look()
    assert read_head(world.objects) == owner.head
    assert owner.head.base == 2


def test_a_writer_replaces_no_head_if_a_later_one_has_added_a_round(world: World) -> None:
    before = world.claim()
    content, _ = world.objects.get(HEAD_NAME)
    middle = world.claim()
    world.claim("b")
    put_head(world, content)
    everything = world.everything()
    with pytest.raises(
        BadObject, match=r"has the epoch 1, not 2: .*put back, and rounds/.*3 is another writer's"
    ):
        middle.look()
    with pytest.raises(BadObject, match="is not the round that this nsqd has written"):
        middle.append(wrote(b"a"), is_mark=True)
    with pytest.raises(BadObject, match="is not the round that this nsqd has written"):
        before.append(wrote(b"a"), is_mark=True)
    assert world.everything() == everything


@pytest.mark.parametrize("name", ["data", "other"])
def test_a_claim_goes_on_from_the_rounds_if_the_head_was_rolled_back(world: World, name: str) -> None:
    """By the data path that has written the newest rounds, or by one that restores."""
    owner = rolled_back(world)
    found: list[str] = []
    after = world.claim(name, on_damage=lambda error: found.append(str(error)))
    assert after.epoch == 3
    assert after.image is not None and after.image.small == {CURSOR: b"b"} and not after.image.is_broken
    assert found == [
        "head.json has the epoch 1, and rounds/0000000000000004, of another claim, the epoch 2: an earlier version of it was put "
        "back; the rounds count"
    ]
    with pytest.raises(Superseded, match="since its epoch 3"):
        owner.look()
    after.append(wrote(b"!", 1), is_mark=True)
    assert world.claim().image.small == {CURSOR: b"b!"}  # type: ignore[union-attr]


def test_a_rolled_back_head_is_judged_by_the_writer_of_the_newest_rounds(world: World) -> None:
    rolled_back(world, "b")
    everything = world.everything()

    def check(name: str) -> Callable[[Head | None], None]:
        def refuse(head: Head | None) -> None:
            assert head is not None
            if not world.claims(name).is_mine(head):
                raise PermissionError(f"{head.node} (epoch {head.epoch})")

        return refuse

    with pytest.raises(PermissionError, match=r"an unknown nsqd \(epoch 2\)"):
        claim(world.objects, "a", world.claims("data"), check("data"))
    assert world.everything() == everything
    assert claim(world.objects, "b", world.claims("b"), check("b")).epoch == 3


def test_a_head_that_is_rolled_back_while_it_is_claimed(world: World) -> None:
    """The epoch that was claimed is another writer's already: the claim adds nothing in it, and is repeated above it."""
    owner = rolled_back(world)
    rounds_before = world.names("rounds")
    with (
        mock.patch("nsqd_py.store.ownership._is_older", return_value=False),
        pytest.raises(StoreError, match="earlier version"),
    ):
        world.claim()
    assert world.names("rounds") == rounds_before
    claims = world.claims()
    assert owner.writer in claims.writers
    after = world.claim()
    assert after.epoch == 3
    assert world.claims().writers == [after.writer]


def test_a_claim_whose_head_is_rolled_back_before_its_end_is_repeated(world: World) -> None:
    world.claim()
    content, _ = world.objects.get(HEAD_NAME)
    original = world.objects.objects.create

    def create(name: str, data: bytes) -> Any:
        made = original(name, data)
        if name.startswith("rounds"):
            put_head(world, content)
        return made

    with (
        mock.patch.object(world.objects.objects, "create", create),
        pytest.raises(StoreError, match="has the epoch 1, not 2: an earlier version of it was put back"),
    ):
        world.claim()
    assert world.claim().epoch == 3


def test_a_reader_goes_on_from_the_rounds_if_the_head_was_rolled_back(world: World) -> None:
    rolled_back(world)
    found: list[str] = []
    state = read_state(world.objects, lambda error: found.append(str(error)))
    assert state.image.small == {CURSOR: b"b"}
    assert found == [
        "rounds/ has rounds of the epoch 2, which head.json does not know: an earlier version of it was put back"
    ]


def test_check_data_names_a_head_that_was_rolled_back(world: World) -> None:
    rolled_back(world)
    report = check_store(f"file://{world.path}/store", "", world.path / "data")
    (found,) = report.damaged
    assert found.name == HEAD_NAME
    assert found.damage == (
        "head.json has the epoch 1, and rounds/0000000000000004 the epoch 2: an earlier version of it was put back"
    )
    world.claim()
    assert check_store(f"file://{world.path}/store", "", world.path / "data").is_well


def test_rounds_of_the_base_that_counts_stay_if_the_later_one_is_not_complete(world: World) -> None:
    owner = world.claim()
    content, _ = world.objects.get(HEAD_NAME)
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=True, is_base=True)
    owner.append(wrote(b"b"), is_mark=False, is_base=True)
    put_head(world, content)
    after = world.claim()
    world.now_ns += KEEP_NS + 1
    after.collect()
    assert world.claim().image.small == {CURSOR: b"a"}  # type: ignore[union-attr]


# ---- what is deleted


def test_rounds_below_the_base_are_deleted_an_hour_later_but_takeovers_stay(world: World) -> None:
    owner = world.claim()
    owner.append(wrote(b"a"), is_mark=True)
    owner.append(wrote(b"b"), is_mark=True, is_base=True)
    owner.append(wrote(b"c", 1), is_mark=True)
    world.now_ns += 2 * KEEP_NS
    assert owner.collect() == 0, "the head does not name the base yet"
    owner.move_head()
    assert owner.collect() == 0
    world.now_ns += KEEP_NS
    world.objects.failed.append("delete")
    with pytest.raises(StoreError):
        owner.collect()
    assert owner.collect() == 1
    assert world.names("rounds") == [round_name(number) for number in (1, 3, 4)]
    assert owner.collect() == 0
    assert world.state() == b"bc"


def test_files_are_deleted_an_hour_after_they_were_dropped(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"log")
    owner = world.claim()
    world.objects.put_file(FILE.name, path, 3)
    owner.append(rounds.files_frame([FILE]) + wrote(b"a"), is_mark=True)
    owner.append(rounds.files_frame(removed=[FILE.name]), is_mark=True)
    owner.drop_files([FILE.name])
    owner.collect()
    assert world.names("files") == [FILE.name]
    world.now_ns += KEEP_NS
    owner.collect()
    assert world.names("files") == []


def test_files_of_earlier_writers_that_are_in_no_state_are_deleted(world: World, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"log")
    first = world.claim()
    orphan, own = FILE._replace(salt=6), FILE._replace(epoch=2)
    for file in (FILE, orphan, own):
        world.objects.put_file(file.name, path, 3)
    first.append(rounds.files_frame([FILE]), is_mark=True)
    second = world.claim()
    world.now_ns += KEEP_NS
    assert second.collect() == 1
    assert world.names("files") == sorted([FILE.name, own.name])
    with pytest.raises(Missing):
        world.objects.get(orphan.name)


def test_errors_are_not_taken_for_each_other() -> None:
    kinds = (StoreError, StoreRefused, Exists, Missing, Changed, BadObject)
    assert [
        (one, other) for one in kinds for other in kinds if one is not other and issubclass(one, other)
    ] == []


def test_a_question_who_may_claim_a_store_writes_nothing(tmp_path: Path) -> None:
    """Also if `nsqd.store` is damaged."""
    (tmp_path / CLAIMS_FILE).write_bytes(b"damaged, with the store and the writer of the head")
    assert not Claims(tmp_path).is_mine(Head("store", 1, "writer", "node"))
    assert [path.name for path in tmp_path.iterdir()] == [CLAIMS_FILE]
