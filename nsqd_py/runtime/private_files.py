"""Files that contain messages: only their owner can read them, whatever the umask is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

MODE = 0o600
DIRECTORY_MODE = 0o700


def create(path: str | Path, buffer_bytes: int = -1) -> BinaryIO:
    """Open an empty file for writing. Raises OSError."""
    return open(path, "wb", buffer_bytes, opener=_opener)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file with this content. Raises OSError."""
    with create(path) as file:
        file.write(data)


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, MODE)
