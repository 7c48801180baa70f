"""Claims and readers of a store with a damaged head, and with damaged or missing rounds."""

from __future__ import annotations

import json
from dataclasses import asdict
from unittest import mock

import pytest
from google_crc32c import value

from nsqd_py.feed.pieces import Begin, Commit
from nsqd_py.objects.calls import StoreError
from nsqd_py.store import rounds
from nsqd_py.store.image import read_head
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head, round_name
from nsqd_py.store.ownership import CLAIMS_FILE, Superseded, claim
from tests.unit.store.claimed_store import CURSOR, OTHER, World, put_head, wrote


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
