"""Long lists of names are sorted and encoded in steps."""

from __future__ import annotations

import json
import random

import pytest

from nsqlookupd_py.registry import SHORT, STEP, json_list, sorted_names


@pytest.mark.parametrize("size", [0, 1, SHORT, SHORT + 1, 20_000])
def test_sorting_in_steps_gives_what_sorting_at_once_gives(size: int) -> None:
    names = {f"n{random.Random(number).random()}" for number in range(size)}
    rests = []
    assert sorted_names(names, lambda: rests.append(1)) == sorted(names)
    assert len(rests) == 0 if size <= SHORT else len(rests) >= size // STEP


def test_names_that_are_alike_at_their_beginning_fall_into_many_ranges() -> None:
    names = [f"{'x' * 50}{number:06}" for number in range(20_000)]
    sizes: list[int] = []
    found = sorted_names(dict.fromkeys(reversed(names)), lambda: sizes.append(1))
    assert found == names
    assert len(sizes) >= 2 * 20


@pytest.mark.parametrize("size", [0, 1, STEP, STEP + 1, 3 * STEP])
def test_pieces_make_up_one_list(size: int) -> None:
    values = [f'"{number}' for number in range(size)]
    assert json.loads(b"".join(json_list(values))) == values
