"""Sizes as people read them."""

from __future__ import annotations

# Units, and the decimals of each.
_STEPS = (("B", 0), ("kB", 1), ("MB", 1), ("GB", 2), ("TB", 2))


def size_text(size_bytes: float) -> str:
    """Return the size with its unit: `512 B`, `1.5 MB`."""
    step = 0
    while size_bytes >= 999.5 and step < len(_STEPS) - 1:
        size_bytes /= 1000
        step += 1
    unit, digits = _STEPS[step]
    return f"{size_bytes:.{digits}f} {unit}"
