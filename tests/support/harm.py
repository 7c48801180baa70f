"""Harm to files whose program has them open, and what tells whether files are unharmed."""

from __future__ import annotations

import mmap
from pathlib import Path


def flip(path: Path, *places: int, mask: int = 16) -> None:
    """Flip bits of these bytes, in place; a place below 0 counts from the end."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for place in places:
            content[place] ^= mask


def content(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()
    }
