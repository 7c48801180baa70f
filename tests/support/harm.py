"""Harm to files whose program has them open, and what tells whether files are unharmed."""

from __future__ import annotations

import mmap
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest


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


# ---- directories


def mount(path: Path) -> Callable[[], object]:
    """Mount an empty file system onto a directory; return a call that ends that."""
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=False, capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr!r}")
    return lambda: subprocess.run(["umount", path], check=True)


def put_aside(path: Path) -> Callable[[], object]:
    """Move a directory away, and make an empty one; return a call that brings it back."""
    old = path.with_name("old")
    path.rename(old)
    path.mkdir()

    def bring_back() -> None:
        path.rmdir()
        old.rename(path)

    return bring_back


def put_away(path: Path) -> Callable[[], object]:
    """Move a directory away; return a call that brings it back."""
    old = path.with_name("old")
    path.rename(old)
    return lambda: old.rename(path)
