"""Tests that run at the same time, in processes of their own, and those that need the machine for themselves.

A test marked `alone` measures what others would disturb. Every test holds a shared lock while it runs, and one that
is marked the exclusive one; the gate keeps others from slipping in while it waits for those that run.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

MARK = "alone"
# Of this checkout: a test that hangs in another one holds no one up.
_LOCKS = Path(
    tempfile.gettempdir(), "nsqd-tests" + str(Path(__file__).resolve().parents[2]).replace("/", "-")
)


@contextmanager
def room_for(item: pytest.Item) -> Iterator[None]:
    """While it is entered, nothing else runs with a test that is marked."""
    with ExitStack() as room:
        with _locked("gate", fcntl.LOCK_EX):
            is_alone = item.get_closest_marker(MARK) is not None
            room.enter_context(_locked("room", fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH))
        yield


@contextmanager
def _locked(name: str, operation: int) -> Iterator[None]:
    _LOCKS.mkdir(exist_ok=True)
    descriptor = os.open(_LOCKS / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)
