"""Damage in a standby's copy: what another program did to its files, and bytes that the disk changed.

`changed_files` finds files that were removed, cut or replaced, within about a second; `CopyDamage` remembers them.
`ArrivalCheck` checks records as they come from the primary, which may have damaged ones itself. The scrub reads everything
again, slowly.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nsqd_py.diskqueue.checking import valid_end
from nsqd_py.diskqueue.journals.ranges import ByteRanges, Range, count_of
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, MAGIC, RECORD_HEADER_BYTES, Damaged, FileHeader

# No record is so large, with the usual limits; if one is, the file is read again to check it.
_MOST_PARTIAL_BYTES = 16 * 1024 * 1024


class KnownFile(NamedTuple):
    """A file of the copy as it must be: at least `size_bytes`, and the inode `inode`, unless that is 0."""

    name: str
    size_bytes: int
    inode: int


def changed_files(directory: Path, files: Iterable[KnownFile]) -> dict[str, str]:
    """Return what another program did to each of these files that it changed, by name. May run in a thread."""
    found = {}
    for name, size_bytes, inode in files:
        try:
            status = os.stat(directory / name)
        except FileNotFoundError:
            found[name] = "was removed"
            continue
        except OSError as error:
            found[name] = f"cannot be read ({error.strerror})"
            continue
        if inode and status.st_ino != inode:
            found[name] = "was replaced"
        elif status.st_size < size_bytes:
            found[name] = f"was cut at {status.st_size} of {size_bytes} bytes"
    return found


# ---- what is wrong


class CopyDamage:
    """The damage in the files of a copy.

    changed         what another program did to files that are not complete again, by name
    damaged         byte ranges without a valid record, by name
    changed_count   files that another program changed, since the start
    damaged_bytes   found since the start, each once
    repaired_bytes  of these, also by a new version of the file
    """

    def __init__(self) -> None:
        self.changed: dict[str, str] = {}
        self.damaged: dict[str, ByteRanges] = {}
        self.changed_count = 0
        self.damaged_bytes = 0
        self.repaired_bytes = 0

    @property
    def is_well(self) -> bool:
        return not self.changed and not self.damaged

    def text(self) -> str:
        """Return a sentence about what is wrong; "" if nothing is."""
        if self.changed:
            name, what = next(iter(self.changed.items()))
            return f"{name} {what}{_and_others(len(self.changed))}; copying again"
        if self.damaged:
            name, ranges = next(iter(self.damaged.items()))
            first, _ = next(iter(ranges))
            return f"{name} has {count_of(ranges)} damaged bytes at {first}{_and_others(len(self.damaged))}"
        return ""

    def statistics(self) -> dict[str, int]:
        """Return what /stats shows."""
        return {
            "damaged_files": len(self.changed.keys() | self.damaged.keys()),
            "changed_files": self.changed_count,
            "damaged_bytes": self.damaged_bytes,
            "repaired_bytes": self.repaired_bytes,
        }

    def change(self, changed: Mapping[str, str]) -> None:
        """Note what another program did to files."""
        self.changed_count += len(changed)
        self.changed.update(changed)

    def note(self, name: str, ranges: list[Range]) -> bool:
        """Note the damaged ranges of a file, at least one; return True if some of that was not known."""
        known = self.damaged.setdefault(name, ByteRanges())
        new = sum(known.add(start, end) for start, end in ranges)
        self.damaged_bytes += new
        return new > 0

    def repaired(self, name: str, ranges: list[Range], left: list[Range]) -> None:
        """Note that these ranges of a file are valid again, except for those in `left`."""
        known = self.damaged.get(name)
        if known is None:
            return
        self.repaired_bytes += sum(known.remove(start, end) for start, end in ranges)
        self.repaired_bytes -= sum(known.add(start, end) for start, end in left)
        if not known:
            del self.damaged[name]

    def forget(self, name: str) -> None:
        """Forget the damage of a file that is gone, or is another one."""
        self.repaired_bytes += count_of(self.damaged.pop(name, ()))


def _and_others(count: int) -> str:
    return f" (and {count - 1} other files)" if count > 1 else ""


# ---- records that arrive


class ArrivalCheck:
    """Checks the records of log files as they arrive, in pieces that end anywhere.

    suspects  names of files that have bytes without a valid record, with the offset of the first of them
    """

    def __init__(self) -> None:
        self.suspects: dict[str, int] = {}
        self._salts: dict[str, int] = {}  # of new versions that are arriving
        self._partial: dict[str, tuple[int, bytes]] = {}  # the offset and the beginning of a record

    def feed(self, name: str, salt: int | None, offset: int, data: bytes) -> None:
        """Check bytes that continue a file, or begin it. `salt` is None for a new version: its header has it."""
        if offset == 0:
            self.forget(name)
            salt = self._salt_in(name, data)
            data = data[FILE_HEADER_BYTES:]
            offset = FILE_HEADER_BYTES
        elif salt is None:
            salt = self._salts.get(name)
        if salt is None or name in self.suspects:
            return
        start, before = self._partial.pop(name, (offset, b""))
        if start + len(before) != offset:
            self.suspects[name] = FILE_HEADER_BYTES
            return
        data = before + data if before else data
        end = valid_end(data, salt)
        if end == len(data):
            return
        rest = data[end:]
        if len(rest) <= _MOST_PARTIAL_BYTES and _may_begin_record(rest):
            self._partial[name] = start + end, rest
        else:
            self.suspects[name] = start + end

    def _salt_in(self, name: str, data: bytes) -> int | None:
        """Return the salt in the header with which a file begins; None if it is damaged."""
        try:
            salt = FileHeader.decode(data[:FILE_HEADER_BYTES]).salt
            self._salts[name] = salt
        except Damaged:
            self.suspects[name] = 0
            return None
        return salt

    def renamed(self, name: str, new_name: str) -> None:
        """Handle that a new version replaces a file."""
        self.forget(new_name)
        self._salts.pop(name, None)
        if name in self.suspects:
            self.suspects[new_name] = self.suspects.pop(name)
        if name in self._partial:
            self._partial[new_name] = self._partial.pop(name)

    def forget(self, name: str) -> None:
        """Forget a file that is gone."""
        self.suspects.pop(name, None)
        self._salts.pop(name, None)
        self._partial.pop(name, None)

    def end_round(self) -> None:
        """Handle that all records have arrived in full: what is incomplete is damaged."""
        for name, (offset, _) in self._partial.items():
            self.suspects.setdefault(name, offset)
        self._partial.clear()


def _may_begin_record(data: bytes) -> bool:
    """True if these bytes may be the beginning of a record whose other bytes come later."""
    if not MAGIC.startswith(data[: len(MAGIC)]):
        return False
    if len(data) < RECORD_HEADER_BYTES:
        return True
    length = int.from_bytes(data[4:8], "little")
    return len(data) < RECORD_HEADER_BYTES + length
