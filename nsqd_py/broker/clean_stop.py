"""The record of a clean stop: where each log ended. A start that finds it knows what must be there.

After a kill or a power cut the end of a log may be torn, and that is no damage. After a clean stop nothing may be
missing: whatever is, was removed or damaged since. The record is a file `nsqd.stop`, made as the last thing of a clean
stop and removed by the next start before anything is written to a log. Its first line is the crc32c of the rest, which
is JSON; one that is damaged counts as none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from google_crc32c import extend

from nsqd_py.broker.metadata import replace_file
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.log import TopicLog

STOP_FILE = "nsqd.stop"


class LogEnd(NamedTuple):
    """Where the log of a topic ended.

    next_seq    the number of its next message
    file_seqs   the first number of each of its files, in order
    end_offset  where the last record of the last file ended
    """

    next_seq: int
    file_seqs: Sequence[int]
    end_offset: int


def end_of(log: TopicLog) -> LogEnd:
    """Return where a log ends now."""
    files = log.files
    return LogEnd(log.next_seq, [file.first_seq for file in files], files[-1].end_offset if files else 0)


def write_clean_stop(directory: Path, ends: Mapping[str, LogEnd]) -> None:
    """Record where the logs of these topics ended, durably. Raises OSError."""
    content = json.dumps({"logs": {topic: tuple(end) for topic, end in ends.items()}}).encode()
    replace_file(directory / STOP_FILE, b"%08x\n%b" % (extend(0, content), content))


def read_clean_stop(directory: Path) -> dict[str, LogEnd]:
    """Return the ends of the logs by topic; empty when nsqd did not stop cleanly. Raises OSError."""
    try:
        checksum, _, content = (directory / STOP_FILE).read_bytes().partition(b"\n")
    except FileNotFoundError:
        return {}
    if checksum != b"%08x" % extend(0, content):
        return {}
    return {topic: LogEnd(*end) for topic, end in json.loads(content)["logs"].items()}


def forget_clean_stop(directory: Path) -> None:
    """Remove the record, durably: from now on the logs change. Raises OSError."""
    path = directory / STOP_FILE
    if path.exists():
        path.unlink()
        sync_directory(directory)
