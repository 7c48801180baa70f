"""An earlier version of the head is put back: owners, claims and readers go on from the rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest

from nsqd_py.objects.calls import StoreError
from nsqd_py.store.checking import check_store
from nsqd_py.store.image import read_head
from nsqd_py.store.layout import HEAD_NAME, BadObject, Head
from nsqd_py.store.ownership import KEEP_NS, Owner, Superseded, claim
from nsqd_py.store.reading import read_state
from tests.unit.store.claimed_store import CURSOR, World, put_head, wrote


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
