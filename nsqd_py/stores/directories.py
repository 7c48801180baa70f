"""The files in directories of archives: which have messages, and which programs keep next to them, by their names.

A topic may begin with an underscore, so not every such name is hidden.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from nsqd_py.stores.formats import name_without_compression

# The names that nsq-to-file, Go's nsq_to_file and both nsqds give to files with messages, apart from a compression.
MESSAGE_SUFFIXES = (".log", ".jsonl", ".framed", ".nsqf", ".parquet")
# The lists of finished files that nsq-to-file keeps. The first is that of earlier versions; the later one counts.
MANIFESTS = ("_manifest.jsonl", "_nsq_manifest")
DELTA_LOG = "_delta_log"
POINTERS = "_nsq_tables"
# The files of nsqd in its data path that are not of one topic.
STATE_FILES = tuple(
    f"nsqd.{name}"
    for name in ("dat", "stop", "clock", "epochs", "standby", "member", "standbys", "backup", "store")
)
# What both nsqds and nsq-to-file keep next to files with messages.
_COMPANIONS = (".bad", ".crc", ".cursor", ".damaged", ".dat", ".gone", ".moving", ".pid", ".spare", ".tmp")
_CLAIM = re.compile(r"\.nsq_to_file\.[0-9a-f]+\.json")
_CLAIM_BYTES = 1 << 20
# A queue of Go's nsqd has no magic number, and its messages may hold any.
_GO_QUEUE = re.compile(r"\.diskqueue\.\d+\.dat$")
# The directories in which Spark and table formats keep their own files.
_OF_ENGINES = re.compile(
    r"_(?:temporary|spark_metadata|delta_\w+|change_data|symlink_format_manifest|checkpoints?)"
)
# The directories in a data path in which nsqd sets files aside, with the time: messages that the data path has too, or that are
# of another log. Other directories may be named after a topic.
_SET_ASIDE = re.compile(
    r"(?:standby-(?:alone|removed)|store-alone|go-nsqd)-\d{8}(?:T\d{6}Z|\.\d+)?(?:-again)*"
)
# The one of an unfinished import of the files of Go's nsqd. In other directories it is that of a topic.
_IMPORT = "import"
_DATA_PATH = "nsqd.dat"
# Hive's directories have the name of a column.
_HIVE_TOPIC = re.compile(r"(?:.*/)?topic=([^/]+)/.*", re.DOTALL)
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # a link that leads in a circle is no file


class Entry(NamedTuple):
    """A file, with its whole path."""

    path: str
    size_bytes: int
    modified_ns: int


class Files(Protocol):
    """The directories of a reader."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; nothing if it is not there."""
        ...

    def head(self, path: str, size_bytes: int) -> bytes:
        """Return the first bytes of a file; b"" if it cannot be read."""
        ...

    def find(self, path: str) -> Entry | None:
        """Return the file at this path; None for a directory, and if there is nothing."""
        ...

    def walk(self, directory: str) -> Iterator[Entry]:
        """Yield all files below a directory, which need not exist, in no order; none in directories that are passed over.

        The log of a Delta table is passed over too, but an Entry of its directory, of 0 bytes, says that it is there.
        """
        ...


class LocalFiles:
    """The directories of this machine.

    on_error  called with an OSError that is another one than that a file is not there
    """

    def __init__(self, on_error: Callable[[OSError], None]) -> None:
        self._on_error = on_error

    def names(self, directory: str) -> list[str]:
        try:
            return os.listdir(directory)
        except OSError:
            return []

    def head(self, path: str, size_bytes: int) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read(size_bytes)
        except OSError:
            return b""

    def find(self, path: str) -> Entry | None:
        status = self._status(path)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        return Entry(path, status.st_size, status.st_mtime_ns)

    def walk(self, directory: str) -> Iterator[Entry]:
        """Yield the files of each directory once, however many links lead to it."""
        seen: set[tuple[int, int]] = set()
        for parent, directories, names in os.walk(directory, onerror=self._note, followlinks=True):
            status = self._status(parent)
            if status is None or (status.st_dev, status.st_ino) in seen:
                directories.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            if DELTA_LOG in directories:
                yield Entry(os.path.join(parent, DELTA_LOG), 0, 0)
            links_last = sorted(
                directories, key=lambda name: (os.path.islink(os.path.join(parent, name)), name)
            )
            if _DATA_PATH in names and _IMPORT in links_last:
                links_last.remove(_IMPORT)
            directories[:] = [name for name in links_last if not is_passed_over(name)]
            for name in names:
                entry = self.find(os.path.join(parent, name))
                if entry:
                    yield entry

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(path)
        except OSError as error:
            self._note(error)
            return None

    def _note(self, error: OSError) -> None:
        if error.errno not in _NO_FILE:
            self._on_error(error)


# --- names


def directories_above(path: str) -> Iterator[str]:
    """Yield the directories that contain a path, up to the root or the bucket, without a slash at the end."""
    scheme, separator, rest = path.rpartition("://")
    while "/" in rest:
        rest = rest.rpartition("/")[0]
        yield f"{scheme}{separator}{rest}"


def is_passed_over(directory: str) -> bool:
    """True for the name of a hidden directory, of one in which Spark or a table format keeps its own files, and of one in which
    nsqd sets files aside. Others may be named after a topic, which may begin with an underscore.
    """
    if directory.startswith(".") or is_set_aside(directory):
        return True
    return _OF_ENGINES.fullmatch(directory) is not None


def is_set_aside(directory: str) -> bool:
    """True for the name of a directory in which nsqd, in its data path, sets files aside."""
    return _SET_ASIDE.fullmatch(directory) is not None


def is_go_queue(name: str) -> bool:
    return _GO_QUEUE.search(name_without_compression(name)) is not None


def has_messages(name: str) -> bool:
    """True for the name of a file with messages, or of a queue of Go's nsqd."""
    if name.startswith(".") or name in MANIFESTS:
        return False
    return name_without_compression(name).endswith(MESSAGE_SUFFIXES) or is_go_queue(name)


def is_claim(name: str) -> bool:
    """True for the name of the file that says which file a running nsq-to-file writes."""
    return _CLAIM.fullmatch(name) is not None


def is_companion(name: str) -> bool:
    """True for the name of a file that nsqd or nsq-to-file keeps next to files with messages."""
    if name in MANIFESTS or name in STATE_FILES or is_claim(name):
        return True
    return name.endswith(_COMPANIONS) and not is_go_queue(name)


def hive_topic(path: str) -> str:
    """Return the topic in Hive's directory `topic=...`; "" if there is none. nsq-to-file's files do not have it then."""
    named = _HIVE_TOPIC.fullmatch(path)
    if named:
        return unquote(named[1])
    return ""


# --- files by their names


class Found(NamedTuple):
    """The files of a directory that may be read, in order; the paths of those that nsq-to-file still writes; and of others
    that neither nsqd nor nsq-to-file keeps there.
    """

    readable: list[Entry]
    in_progress: list[str]
    others: list[str]


def sorted_by_name(entries: Iterable[Entry], files: Files, *, takes_all: bool = False) -> Found:
    """Return the files that have messages by their names, or with `takes_all` whatever their names, and the others."""
    found = Found([], [], [])
    everything = sorted(entries)
    claimed = {_claimed(entry.path, files) for entry in everything if is_claim(os.path.basename(entry.path))}
    for entry in everything:
        name = os.path.basename(entry.path)
        if name.startswith(".") or name in MANIFESTS or (name.startswith("_") and not has_messages(name)):
            continue
        if entry.path in claimed:
            found.in_progress.append(entry.path)
        elif takes_all or has_messages(name):
            found.readable.append(entry)
        elif entry.size_bytes and not is_companion(name):
            found.others.append(entry.path)
    return found


def _claimed(path: str, files: Files) -> str:
    """Return the file that a claim is about; "" if the claim is gone by now."""
    try:
        name = json.loads(files.head(path, _CLAIM_BYTES))["work_name"]
    except (ValueError, KeyError, TypeError):
        return ""
    return f"{path.rpartition('/')[0]}/{name}"
