"""What a disk may hold after a power cut: a tape of all that was done to it, and the states that follow from it.

A sync brings a file's bytes to the disk, one of the directory the names. What came after the last sync is there, or
not, or in part: bytes by the sector, in any order; names in the order in which they were made. That a file is synced
says nothing of its name; that a name is there, nothing of the bytes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.disk_calls import Instead, as_it_is, watched

SECTOR_BYTES = 512

Op = tuple[Any, ...]


class Tape:
    """Everything that was done to the files of a directory; `mark` puts in what was promised in the meantime."""

    def __init__(self, root: Path, fault: Instead = as_it_is) -> None:
        self.root = root
        self._fault = fault
        self.ops: list[Op] = []
        self._names: dict[str, int] = {}
        self._files: dict[int, int] = {}
        self._next_file = 0

    def mark(self, *what: Any) -> None:
        self.ops.append(("mark", *what))

    def sync_all(self, failed: str) -> None:
        """Note a sync of the whole file system, which fails for one path."""
        self.ops += [
            ("sync failed" if path == failed else "sync", file) for path, file in self._names.items()
        ]
        self.ops.append(("sync names",))

    @contextmanager
    def recording(self) -> Iterator[None]:
        with watched(self.root, self._instead):
            yield

    def _instead(self, name: str, path: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        before = os.lseek(arguments[0], 0, os.SEEK_CUR) if name == "write" else 0
        existed = name != "open" or os.path.lexists(path)
        try:
            result = self._fault(name, path, real, arguments)
        except OSError:
            if name in ("fsync", "fdatasync") and arguments[0] in self._files:
                self.ops.append(("sync failed", self._files[arguments[0]]))
            raise
        self._note(name, path, arguments, result, before, existed)
        return result

    def _note(
        self, name: str, path: str, arguments: tuple[Any, ...], result: Any, before: int, existed: bool
    ) -> None:
        if name == "open":
            self._note_open(path, arguments[1], result, existed)
        elif name in ("rename", "replace"):
            self._names[arguments[1]] = self._names.pop(path)
            self.ops.append(("rename", path, arguments[1]))
        elif name in ("unlink", "remove"):
            if self._names.pop(path, None) is not None:  # else it is a hard link, which is not on the tape
                self.ops.append(("unlink", path))
        elif name == "close":
            self._files.pop(arguments[0], None)
        elif name == "dup":
            if arguments[0] in self._files:
                self._files[result] = self._files[arguments[0]]
        elif path == str(self.root):
            if name in ("fsync", "fdatasync"):
                self.ops.append(("sync names",))
        elif arguments and arguments[0] in self._files:
            self._note_bytes(name, self._files[arguments[0]], arguments, result, before)

    def _note_open(self, path: str, flags: int, fd: int, existed: bool) -> None:
        if path == str(self.root) or os.path.isdir(path):
            return
        if not existed:
            self._next_file += 1
            self._names[path] = self._next_file
            self.ops.append(("create", path, self._next_file))
        elif flags & os.O_TRUNC:
            self.ops.append(("truncate", self._names[path], 0))
        self._files[fd] = self._names[path]

    def _note_bytes(self, name: str, file: int, arguments: tuple[Any, ...], result: Any, before: int) -> None:
        if name in ("fsync", "fdatasync"):
            self.ops.append(("sync", file))
        elif name == "write":
            self.ops.append(("write", file, before, bytes(arguments[1])[:result]))
        elif name == "pwrite":
            self.ops.append(("write", file, arguments[2], bytes(arguments[1])[:result]))
        elif name == "pwritev":
            self.ops.append(("write", file, arguments[2], b"".join(arguments[1])[:result]))
        elif name == "ftruncate":
            self.ops.append(("truncate", file, arguments[1]))
        elif name == "posix_fallocate":
            self.ops.append(("extend", file, arguments[1] + arguments[2]))


@dataclass
class _File:
    """Changes are counted: `done` of them are in `synced`, and `since` has the others."""

    synced: bytearray = field(default_factory=bytearray)
    since: list[Op] = field(default_factory=list)
    done: int = 0

    @property
    def end(self) -> int:
        return self.done + len(self.since)

    def sync(self, end: int) -> None:
        """Bring what was changed before the change number `end` to the disk."""
        count = max(0, end - self.done)
        for change in self.since[:count]:
            _change(self.synced, change)
        del self.since[:count]
        self.done += count


class Platter:
    """What is on the disk for certain, and what may be.

    A sync that fails leaves each sector written or not, by chance, and no later sync does anything about it.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.marks: list[Op] = []
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        self._names_since: list[Op] = []
        self._syncs: dict[int, tuple[_File, int]] = {}  # those under way, by number

    def do(self, op: Op) -> None:
        kind = op[0]
        if kind == "mark":
            self.marks.append(op[1:])
        elif kind == "create":
            self._files[op[2]] = _File()
            self._names_since.append(op)
        elif kind in ("rename", "unlink"):
            self._names_since.append(op)
        elif kind == "sync names":
            _rename(self._names, self._names_since)
            self._names_since.clear()
        elif kind == "sync":
            file = self._files[op[1]]
            file.sync(file.end)
        elif kind == "sync began":
            self._syncs[op[1]] = (self._files[op[2]], self._files[op[2]].end)
        elif kind == "sync ended":
            file, end = self._syncs.pop(op[1])
            file.sync(end)
        elif kind == "sync failed":
            file = self._files[op[1]]
            file.synced[:] = self._content(file, 0.5)
            file.done = file.end
            file.since.clear()
        else:
            self._files[op[1]].since.append(op)

    def states(self, count: int) -> Iterator[dict[str, bytes]]:
        """What may be found after a power cut now, as contents by path: the least, the most, and some in between."""
        yield self._state(lambda: 0.0)
        yield self._state(lambda: 1.0)
        for _ in range(count):
            yield self._state(self._chance.random)

    def _state(self, share: Callable[[], float]) -> dict[str, bytes]:
        names = dict(self._names)
        _rename(names, self._names_since[: round(share() * len(self._names_since))])
        return {path: self._content(self._files[file], share()) for path, file in names.items()}

    def _content(self, file: _File, share: float) -> bytes:
        content = bytearray(file.synced)
        for change in file.since:
            for part in _sectors(change) if 0 < share < 1 else [change]:
                if self._chance.random() < share:
                    _change(content, part)
        return bytes(content)


def _rename(names: dict[str, int], ops: list[Op]) -> None:
    for op in ops:
        if op[0] == "create":
            names[op[1]] = op[2]
        elif op[0] == "rename":
            names[op[2]] = names.pop(op[1])
        else:
            del names[op[1]]


def _change(content: bytearray, op: Op) -> None:
    if op[0] == "write":
        _, _, offset, data = op
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data
    elif op[0] == "truncate":
        size = op[2]
        del content[size:]
        content.extend(bytes(size - len(content)))
    else:
        content.extend(bytes(max(0, op[2] - len(content))))


def _sectors(op: Op) -> Iterator[Op]:
    """A write in parts that may get to the disk one by one."""
    if op[0] != "write":
        yield op
        return
    _, file, offset, data = op
    position = 0
    while position < len(data):
        size = SECTOR_BYTES - (offset + position) % SECTOR_BYTES
        yield "write", file, offset + position, data[position : position + size]
        position += size
