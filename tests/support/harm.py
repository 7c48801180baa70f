"""What a disk does to a file while its program has it open."""

from __future__ import annotations

import mmap
from pathlib import Path


def flip(path: Path, *places: int, mask: int = 16) -> None:
    """Flip bits of these bytes, in place; a place below 0 counts from the end."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        for place in places:
            content[place] ^= mask
