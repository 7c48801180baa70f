"""The small files of a data path: their names, those with a checksum, and `nsqd.stop`, the record of a clean stop.

The first line of a file with a checksum is the crc32c of the rest, which is JSON. A damaged file is ignored; one with a right
checksum that nsqd cannot have written ends the start.

`nsqd.stop` says where each log ended. After a kill or a power cut the end of a log may be torn, and that is no damage.
After a clean stop nothing may be missing: whatever is, was removed or damaged since. The file is written as the last
step of a clean stop, and the next start removes it before anything is written to a log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from google_crc32c import extend

from nsqd_py.diskqueue.files.log_file import replace_file, sync_directory
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, SavedEpochs, decode_epochs_of_logs
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.recovery import LogEnd
from nsqd_py.errors import StartError
from nsqd_py.runtime.documents import BAD_CONTENT, checked_number, describe
from nsqd_py.runtime.private_files import read_bytes

METADATA_FILE = "nsqd.dat"  # see `metadata`
STOP_FILE = "nsqd.stop"
CLOCK_FILE = "nsqd.clock"  # see `clock_file`
STANDBY_FILE = "nsqd.standby"  # see `nsqd_py.standby.copies.copy`
MEMBER_FILE = "nsqd.member"  # the random id of a data path, which is not copied
STANDBYS_FILE = "nsqd.standbys"  # see `nsqd_py.standby.repairs.give_back`
STORE_FILE = "nsqd.store"  # see `nsqd_py.store.ownership`
BACKUP_FILE = "nsqd.backup"  # in a data path that is not restored completely, see `nsqd_py.store.restoring`

# Each begins with the checksum of the rest.
_CHECKED_FILES = (
    STOP_FILE,
    CLOCK_FILE,
    EPOCHS_FILE,
    STANDBY_FILE,
    MEMBER_FILE,
    STANDBYS_FILE,
    BACKUP_FILE,
    STORE_FILE,
)

T = TypeVar("T")


# ---- files with a checksum


def write_checked(path: Path, value: dict[str, Any]) -> None:
    """Write a JSON object with its checksum durably. Raises OSError."""
    content = json.dumps(value).encode()
    replace_file(path, b"%08x\n%b" % (extend(0, content), content))


def read_checked(path: Path, decode: Callable[[Any], T]) -> T | None:
    """Return what `decode` makes of the JSON in such a file; None if there is no valid file.

    Raises OSError, and StartError if the checksum is right but the content is not what nsqd writes.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        return decode_checked(data, decode)
    except BAD_CONTENT as error:
        raise StartError(
            f"the content of {path.absolute()} is not what nsqd writes, although its checksum is right: "
            f"{describe(error)}; move the file out of the data path to start without it"
        ) from error


def damaged_files(directory: Path) -> list[str]:
    """Return the names of the files with a checksum that is wrong, as if they were not there. Raises OSError."""
    damaged = []
    for name in _CHECKED_FILES:
        with suppress(FileNotFoundError):
            if _checked_content(read_bytes(directory / name)) is None:
                damaged.append(name)
    return damaged


def decode_checked(data: bytes, decode: Callable[[Any], T]) -> T | None:
    """Return what `decode` makes of the JSON in the content of such a file; None if it is damaged. Raises BAD_CONTENT."""
    content = _checked_content(data)
    if content is not None:
        return decode(json.loads(content))
    return None


def _checked_content(data: bytes) -> bytes | None:
    """Return what follows the checksum; None if that is wrong."""
    checksum, _, content = data.partition(b"\n")
    if checksum == b"%08x" % extend(0, content):
        return content
    return None


# ---- the id of a data path


def data_path_id(directory: Path) -> str:
    """Return the random id of a data path. It is made at the first call. Raises OSError."""
    identity = read_checked(directory / MEMBER_FILE, _decode_id)
    if not identity:
        identity = os.urandom(8).hex()
        write_checked(directory / MEMBER_FILE, {"id": identity})
    return identity


def _decode_id(fields: dict[str, object]) -> str:
    identity = fields["id"]
    if not isinstance(identity, str):
        raise TypeError(f"{identity!r} is not an id")
    return identity


# ---- a clean stop


def end_of(log: TopicLog) -> LogEnd:
    """Return the current end of a log."""
    files = log.files
    end_offset = files[-1].end_offset if files else 0
    return LogEnd(log.next_seq, [file.first_seq for file in files], end_offset)


class CleanStop(NamedTuple):
    """The record of a clean stop.

    ends       of the logs, by topic; empty if nsqd did not stop cleanly
    open_ends  the topics whose logs may have lost their end before that nsqd began: not all standbys have answered since
    """

    ends: dict[str, LogEnd]
    open_ends: set[str]


def write_clean_stop(directory: Path, stop: CleanStop) -> None:
    """Write the record durably. Raises OSError."""
    logs = {topic: tuple(end) for topic, end in stop.ends.items()}
    write_checked(directory / STOP_FILE, {"logs": logs, "open_ends": sorted(stop.open_ends)})


def read_clean_stop(directory: Path) -> CleanStop:
    """Raises OSError."""
    return read_checked(directory / STOP_FILE, _decode_clean_stop) or CleanStop({}, set())


def _decode_clean_stop(record: dict[str, Any]) -> CleanStop:
    ends = {}
    for topic, (next_seq, file_seqs, end_offset) in record["logs"].items():
        checked = [checked_number(seq) for seq in file_seqs]
        ends[topic] = LogEnd(checked_number(next_seq), checked, checked_number(end_offset))
    open_ends = map(str, record.get("open_ends", ()))  # earlier versions write none
    return CleanStop(ends, set(open_ends))


def forget_clean_stop(directory: Path) -> None:
    """Remove the record durably, before the logs change. Raises OSError."""
    path = directory / STOP_FILE
    if path.exists():
        path.unlink()
        sync_directory(directory)


def read_epochs(directory: Path) -> SavedEpochs | None:
    """Return the content of `nsqd.epochs`; None if there is no valid file. Raises OSError."""
    return read_checked(directory / EPOCHS_FILE, decode_epochs_of_logs)
