"""Combinations of parameters: `make test` has those that tell most, the slow lane all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from operator import ne
from typing import Any

import pytest


def sweep(*axes: Iterable[Any]) -> list[Any]:
    """All combinations for `parametrize`. Those that differ from the first one in more than one value are slow."""
    first, *others = itertools.product(*axes)

    def marked(values: tuple[Any, ...]) -> Any:
        is_slow = sum(map(ne, values, first)) > 1
        return pytest.param(*values, marks=pytest.mark.slow if is_slow else ())

    return [pytest.param(*first), *map(marked, others)]


def sample(first: Any, *others: Any) -> list[Any]:
    """Values for `parametrize`, of which all but the first are slow."""
    return [first, *(pytest.param(other, marks=pytest.mark.slow) for other in others)]
