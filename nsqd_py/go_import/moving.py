"""Moving new files into place and old ones aside exactly once, even if the process is killed.

Everything is written into the folder `import/`. Its marker file commits the import: without it the folder is thrown
away, with it every start finishes the remaining moves. The last move takes the marker itself to the old files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from nsqd_py.broker.state_files import METADATA_FILE, replace_file
from nsqd_py.diskqueue.files import parse_log_file_name, sync_directory
from nsqd_py.diskqueue.journal import JOURNAL_SUFFIX
from nsqd_py.errors import StartError
from nsqd_py.go_import import FOLDER

MARKER = "imported.json"
_SYNCS_AT_ONCE = 16  # file systems commit many syncs at once
_OWN_SUFFIXES = (JOURNAL_SUFFIX, ".tmp")


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file as it was when it was read. If it was written to since then, it stays, and is read again."""

    name: str
    size_bytes: int
    modified_ns: int


@dataclass(slots=True)
class Marker:
    """The record of an import.

    aside    the name of the folder for the old files
    new      names of the files that were written
    old      the files that were read
    summary  counts for people to read
    """

    aside: str
    new: list[str]
    old: list[OldFile]
    summary: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> Marker:
        fields = orjson.loads(data)
        return cls(fields["aside"], fields["new"], [OldFile(**old) for old in fields["old"]], fields["summary"])


class ImportFolder:
    """The folder `import/` of a data directory. All methods raise OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / FOLDER

    def begin(self) -> None:
        """Create an empty folder. Raises StartError if it holds other files."""
        self.discard()
        self.path.mkdir(mode=0o700)

    def discard(self) -> None:
        """Delete what was never committed. Raises StartError, with nothing done, if the folder holds other files."""
        if not self.path.is_dir():
            return
        paths = list(self.path.iterdir())
        for path in paths:
            is_log = parse_log_file_name(path.name) is not None
            if not (is_log or path.name.endswith(_OWN_SUFFIXES)):
                raise StartError(f"{path} is in the way of an import; move it elsewhere")
        for path in paths:
            path.unlink()
        self.path.rmdir()

    def committed(self) -> Marker | None:
        """Return the marker of a committed import that is unfinished, or None."""
        try:
            return Marker.decode((self.path / MARKER).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def commit(self, old_names: Iterable[str], now: str, summary: dict[str, Any]) -> Marker:
        """Commit the import; `now` names the folder for the old files."""
        aside = f"go-nsqd-{now}"
        while (self._directory / aside).exists():
            aside += "-again"
        old = [_as_it_is(self._directory / name) for name in old_names]
        new = sorted(self.path.iterdir())
        sync_files(new)
        sync_directory(self.path)
        sync_directory(self._directory)
        marker = Marker(aside, [path.name for path in new], old, summary)
        replace_file(self.path / MARKER, orjson.dumps(asdict(marker), option=orjson.OPT_INDENT_2))
        return marker

    def finish(self, marker: Marker) -> None:
        """Do the remaining moves."""
        directory = self._directory
        for name in marker.new:
            _move(self.path / name, directory / name)
        sync_directory(directory)
        sync_directory(self.path)  # durable before nsqd appends to them at their new place
        aside = directory / marker.aside
        aside.mkdir(mode=0o700, exist_ok=True)
        self._copy_metadata(aside / METADATA_FILE)
        for old in marker.old:
            with contextlib.suppress(FileNotFoundError):
                if _as_it_is(directory / old.name) == old:
                    _move(directory / old.name, aside / old.name)
        sync_directory(aside)
        sync_directory(directory)
        _move(self.path / MARKER, aside / MARKER)
        sync_directory(aside)
        sync_directory(self.path)
        self.discard()
        sync_directory(directory)

    def _copy_metadata(self, copy: Path) -> None:
        if not copy.exists():
            with contextlib.suppress(FileNotFoundError):
                replace_file(copy, (self._directory / METADATA_FILE).read_bytes())


def _as_it_is(path: Path) -> OldFile:
    status = path.stat()
    return OldFile(path.name, status.st_size, status.st_mtime_ns)


def sync_files(paths: Iterable[Path]) -> None:
    """Sync files, many at once. Raises OSError."""
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
        for _ in pool.map(_sync_file, paths):
            pass


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _move(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rename(source, target)
