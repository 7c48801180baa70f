"""How many examples a property test tries: a part of them in `make test`, all of them where new ones are looked for."""

from __future__ import annotations

from hypothesis import settings

FULL = 100  # what a test tries without a number of its own


def examples(count: int) -> int:
    """Return the part of `count` that the profile in use allows; see tests/conftest.py."""
    return max(1, count * settings.default.max_examples // FULL)
