"""The logs and positions that this nsqd has in the directory already.

They exist if the directory was used with Go's nsqd again after an import.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nsqd_py.diskqueue.files import LogFile, parse_log_file_name
from nsqd_py.diskqueue.journal import JOURNAL_SUFFIX, SavedPosition, decode_journal
from nsqd_py.diskqueue.records import Damaged
from nsqd_py.diskqueue.recovery import recover_file


@dataclass(slots=True)
class ExistingTopic:
    """A topic's log and channels.

    next_seq  a number above all known messages
    held      the position from which the topic holds messages back; None if there is none
    """

    next_seq: int = 0
    used_id: int = 0
    held: SavedPosition | None = None
    channels: dict[str, SavedPosition] = field(default_factory=dict)

    @property
    def first_unreleased(self) -> int:
        """The number at which the first channel begins."""
        return self.held.finished.floor if self.held is not None else 0


class ExistingFiles:
    """The names in a directory, by topic. Raises OSError, also from its methods."""

    def __init__(self, directory: Path) -> None:
        self._logs: dict[str, dict[int, Path]] = defaultdict(dict)
        self._journals: dict[str, dict[str, Path]] = defaultdict(dict)
        for path in directory.iterdir():
            parsed = parse_log_file_name(path.name)
            if parsed is not None:
                self._logs[parsed[0]][parsed[1]] = path
            elif path.name.endswith(JOURNAL_SUFFIX):
                topic, _, channel = path.name.removesuffix(JOURNAL_SUFFIX).partition(":")
                self._journals[topic][channel] = path

    def topic(self, name: str) -> ExistingTopic:
        """Read the files of a topic without changing them."""
        found = ExistingTopic()
        for channel, position in self._positions(name):
            found.next_seq = max(found.next_seq, position.end)
            if channel:
                found.channels[channel] = position
            else:
                found.held = position
        if name in self._logs:
            first_seq, path = max(self._logs[name].items())
            found.used_id, end_seq = _end_of_log(path, first_seq)
            found.next_seq = max(found.next_seq, end_seq)
        return found

    def _positions(self, topic: str) -> Iterator[tuple[str, SavedPosition]]:
        for channel, path in self._journals.get(topic, {}).items():
            position, good_bytes = decode_journal(path.read_bytes())
            if good_bytes and not position.is_deleted:
                yield channel, position


def _end_of_log(path: Path, first_seq: int) -> tuple[int, int]:
    """Return the highest id and the number after the last message of the last file."""
    try:
        file = LogFile.open(path)
    except Damaged:
        return 0, first_seq + path.stat().st_size  # an upper bound: a message takes at least a byte
    try:
        return recover_file(file, is_last=True).used_id, file.end_seq
    finally:
        file.close()
