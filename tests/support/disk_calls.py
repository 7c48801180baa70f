"""The calls of `os` by which nsqd uses its disk, with something in between: a tape that notes them, or faults.

Only calls on files below one directory are touched. Whatever asks for the attribute of `os` at the time of the call
is covered, `pathlib` too; the built-in `open` is not.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

WRITES = ("write", "pwrite", "pwritev")
SYNCS = ("fsync", "fdatasync")
BY_DESCRIPTOR = (*WRITES, *SYNCS, "pread", "ftruncate", "posix_fallocate", "dup", "close")
BY_PATH = ("open", "rename", "replace", "unlink", "remove", "stat", "mkdir")

# What is called in place of a call: with its name, the path, the real call and its arguments.
Instead = Callable[[str, str, Callable[..., Any], tuple[Any, ...]], Any]


def as_it_is(name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The real call."""
    return real(*arguments)


class Failing:
    """Some of these calls fail, by chance; a write may also be done in part."""

    def __init__(self, chance: random.Random, share: float, error: int, *calls: str) -> None:
        self.count = 0
        self.is_on = False
        self._chance = chance
        self._share = share
        self._error = error
        self._calls = calls

    def __call__(self, name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if not self.is_on or name not in self._calls or self._chance.random() >= self._share:
            return real(*arguments)
        self.count += 1
        if name in ("write", "pwrite") and self._chance.random() < 0.5:
            fd, data, *place = arguments
            return real(fd, data[: self._chance.randrange(len(data))], *place)
        raise OSError(self._error, os.strerror(self._error))


@contextmanager
def watched(root: Path, instead: Instead) -> Iterator[None]:
    """Calls on files below `root` go to `instead`, which makes the real call, or does not."""
    inside = str(root) + os.sep

    def is_watched(path: object) -> bool:
        return isinstance(path, str) and (path + os.sep).startswith(inside)

    def by_descriptor(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *rest: Any) -> Any:
            path = path_of(fd)
            return instead(name, path, real, (fd, *rest)) if is_watched(path) else real(fd, *rest)

        return call

    def by_path(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any, **named: Any) -> Any:
            text = os.fspath(path) if not isinstance(path, int) else ""
            if is_watched(text):
                return instead(
                    name, text, lambda *arguments: real(*arguments, **named), (text, *map(_text, rest))
                )
            return real(path, *rest, **named)

        return call

    with ExitStack() as stack:
        for wrap, names in ((by_descriptor, BY_DESCRIPTOR), (by_path, BY_PATH)):
            for name in names:
                stack.enter_context(patch.object(os, name, wrap(name, getattr(os, name))))
        yield


_readlink = os.readlink


def path_of(fd: int) -> str:
    """The file of a descriptor; empty for what is none."""
    try:
        return _readlink(f"/proc/self/fd/{fd}").removesuffix(" (deleted)")
    except OSError:
        return ""


def _text(argument: Any) -> Any:
    return os.fspath(argument) if isinstance(argument, os.PathLike) else argument
