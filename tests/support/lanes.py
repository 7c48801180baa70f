"""Which cases of a sweep run in `make test`; the others run with `make test-slow`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """Return the cases as parameters, those that are not `quick` in the slow lane. A tuple has a value for each name."""
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=() if case in quick else pytest.mark.slow
        )
        for case in cases
    ]
