"""Which cases of a sweep run in `make test`; the others are slow, and run with `make test-slow`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from operator import ne
from typing import Any

import pytest


def sampled(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Cases for `parametrize`, of which those that are not `quick` are slow. A tuple has a value for each name."""
    return [_case(case if isinstance(case, tuple) else (case,), is_quick=case in quick) for case in cases]


def sample(first: Any, *others: Any) -> list[Any]:
    """Values for one name, of which all but the first are slow."""
    return [first, *(_case((other,), is_quick=False) for other in others)]


def sweep(*axes: Iterable[Any]) -> list[Any]:
    """All combinations. Those that differ from the first one in more than one value are slow."""
    first, *others = itertools.product(*axes)
    return [pytest.param(*first), *(_case(case, is_quick=sum(map(ne, case, first)) <= 1) for case in others)]


def _case(values: tuple[Any, ...], *, is_quick: bool) -> Any:
    return pytest.param(*values, marks=() if is_quick else pytest.mark.slow)
