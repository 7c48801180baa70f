"""How values are written in flags and options."""

from __future__ import annotations

# What Go's strconv.ParseBool takes.
TRUE_WORDS = frozenset(("1", "t", "T", "true", "TRUE", "True"))
FALSE_WORDS = frozenset(("0", "f", "F", "false", "FALSE", "False"))


def parse_bool(text: str) -> bool:
    """Raises ValueError."""
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise ValueError("expected true or false")
