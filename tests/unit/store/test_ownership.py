"""Claims and owners over objects in a directory, whose answers may be lost; the model has the schedules of several of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nsqd_py.errors import StartError
from nsqd_py.objects.calls import Changed, Exists, Missing, Objects, StoreError, StoreRefused
from nsqd_py.store import rounds
from nsqd_py.store.image import StoreImage, read_head
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head, round_name
from nsqd_py.store.ownership import CLAIMS_FILE, KEEP_NS, Claims, Owner, Superseded, claim
from nsqd_py.store.reading import read_state
from tests.unit.store.claimed_store import CURSOR, FILE, World, wrote

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


def test_a_claim_goes_on_from_the_state_that_its_check_has_read(world: World) -> None:
    """A restore reads the state before it claims the store; what comes in between is read, and nothing twice."""
    before = world.claim("a")
    base = before.append(wrote(b"base"), is_mark=True, is_base=True)
    before.move_head()
    directly = world.objects.objects
    read: list[str] = []

    def get(name: str) -> Any:
        read.append(name)
        return type(directly).get(directly, name)

    def check(_: Head | None) -> StoreImage:
        image = read_state(world.objects, None).image
        before.append(wrote(b"!", 4), is_mark=True)
        return image

    with mock.patch.object(directly, "get", get):
        owner = claim(world.objects, "b:4150", world.claims("b"), check)
    assert owner.image is not None and owner.image.small == {CURSOR: b"base!"}
    assert read.count(round_name(base)) == 2, (
        "once for its epoch, as the newest round, and once for the state"
    )
    assert owner.next_number == base + 3


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
