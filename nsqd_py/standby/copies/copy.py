"""A standby's copy of its primary's files: writes what the stream says into the data path.

All names are checked, so that no message can write anywhere else. Files are written as nsqd writes them: records are
appended, a journal or a sparse file is replaced by another one under its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from google_crc32c import extend

from nsqd_py.broker.state_files import METADATA_FILE, STOP_FILE, read_epochs
from nsqd_py.diskqueue.files.log_file import COMPACT_SUFFIX, LogFile, is_log_name, topic_of_log
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epochs, common_end
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.feed import codec
from nsqd_py.feed.codec import FileMessage
from nsqd_py.feed.pieces import CHECKED_BYTES, OfferedFile, OfferedLog, TopicListing
from nsqd_py.runtime.private_files import open_file, write_bytes
from nsqd_py.standby.copies.damage import ArrivalCheck, KnownFile
from nsqd_py.standby.copies.data_path import BadFileName, check_name, is_durable_name, topic_of
from nsqd_py.standby.copies.departures import Departures
from nsqd_py.standby.copies.syncing import write_at
from nsqd_py.standby.copies.unfinished import Unfinished
from nsqd_py.standby.messages import BadStandbyMessage, GroupMember, Offer


class Copy:
    """The files of a standby. Methods may raise OSError.

    Files grow at their end, or are replaced by a new version. Whatever else would happen to messages that were not
    finished, they are set aside first, see `departures`.

    epoch         when the nsqd that wrote them was promoted, see `nsqd_py.diskqueue.journals.epochs`
    epochs        of the logs, by topic
    member        this nsqd in the group that shares its lease, for offers
    was_primary   True if these are the files of an nsqd that was a primary itself, until it began to follow
    departures    decides what is set aside
    arrival       checks the records that arrive
    replaced      names of files that were removed or replaced since the caller emptied this
    found_damage  damaged ranges that `read` found, by file, until the caller empties this
    to_rewrite    names of files whose last sync failed
    """

    def __init__(
        self,
        directory: Path,
        since_utc: str,
        *,
        was_primary: bool,
        check_place: Callable[[], None] = lambda: None,
    ) -> None:
        """Read the epochs; `read` finds the files. `since_utc`, in names of directories, is when this nsqd began to follow.

        `check_place` raises OSError if the directory is another one by now; it is called before a file is opened or replaced.
        """
        self.was_primary = was_primary
        self._check_place = check_place
        self.member: GroupMember | None = None
        self._directory = directory
        self._read_epochs()
        self._compared: set[str] = set()  # topics of which what this nsqd had as a primary is set aside
        self._logs: dict[str, dict[str, OfferedFile]] = {}
        self._journals: dict[str, set[str]] = {}
        self._unfinished = Unfinished(directory, self._logs, self._journals)
        self.departures = Departures(directory, since_utc, self._logs, self._journals, self._unfinished)
        self._new: set[str] = set()  # the files of which a new version was begun
        self._unsynced: set[str] = set()
        self.to_rewrite: set[str] = set()
        self._has_new_names = False
        self._listed: set[str] = set()
        self._inodes: dict[str, int] = {}
        self._has_metadata = False
        self.arrival = ArrivalCheck()
        self.replaced: set[str] = set()
        self.found_damage: dict[str, list[Range]] = {}
        self._open: tuple[str, int] | None = None  # the file that grew last, and its descriptor

    # ---- the files

    def read(self) -> None:
        """Read the names of all files and the headers of all records, and check the records that were written last."""
        (self._directory / STOP_FILE).unlink(missing_ok=True)
        self._read_epochs()
        self._logs.clear()
        self._journals.clear()
        self._unfinished.changed()
        self._inodes.clear()
        names = sorted(os.listdir(self._directory))
        self._has_metadata = METADATA_FILE in names
        for name in names:
            self._note_journal(name)
        paths = [self._directory / name for name in names if is_log_name(name)]
        newest_s = max((path.stat().st_mtime for path in paths), default=0.0)
        for path in paths:
            topic = topic_of_log(path.name)
            status = path.stat()
            offered, damaged = _offered(path, verify=status.st_mtime > newest_s - 600)
            if damaged:
                self.found_damage[path.name] = damaged
            if topic is not None:
                self._logs.setdefault(topic, {})[path.name] = offered
                self._inodes[path.name] = status.st_ino

    def _read_epochs(self) -> None:
        saved = read_epochs(self._directory)
        self.epoch: int = saved.node if saved is not None else 0
        if saved is not None:
            self.epochs: dict[str, Epochs] = dict(saved.logs)
        else:
            self.epochs = {}

    def _note_journal(self, name: str) -> None:
        topic = topic_of(name)
        if topic is not None and name.endswith(JOURNAL_SUFFIX):
            self._journals.setdefault(topic, set()).add(name)

    def offer(self, http_address: str) -> Offer:
        """Return the parts of logs that the primary need not send."""
        logs = {}
        for topic, files in self._logs.items():
            epochs = self.epochs.get(topic)
            if epochs:
                checked = {name: self._checked(name, file) for name, file in files.items()}
                logs[topic] = OfferedLog(epochs, checked)
        return Offer(self.epoch, http_address, logs, member=self.member)

    def _checked(self, name: str, file: OfferedFile) -> OfferedFile:
        if not file.end_offset:  # it must be copied again
            return file
        start = max(0, file.end_offset - CHECKED_BYTES)
        with (self._directory / name).open("rb") as opened:
            opened.seek(start)
            data = opened.read(file.end_offset - start)
            return file._replace(checksum=extend(0, data))

    # ---- what another program does to the files

    def known_files(self) -> list[KnownFile]:
        """Return the files that must be there, without those that must be copied again."""
        known = [
            KnownFile(name, file.end_offset, self._inodes.get(name, 0))
            for name, file in self._log_files()
            if file.end_offset
        ]
        others = [name for names in self._journals.values() for name in names]
        if self._has_metadata:
            others.append(METADATA_FILE)
        return known + [KnownFile(name, 0, 0) for name in others]

    def log_names(self) -> list[str]:
        """Return the names of all log files."""
        return [name for name, _ in self._log_files()]

    def _log_files(self) -> Iterator[tuple[str, OfferedFile]]:
        for files in self._logs.values():
            yield from files.items()

    def log_file(self, name: str) -> OfferedFile | None:
        """Return what is known of a log file; None if there is none of this name."""
        return self._logs.get(topic_of(name) or "", {}).get(name)

    def copy_again(self, names: Iterable[str]) -> None:
        """Let the primary send these files again after the next offer; until each is complete, the old one stays."""
        self._close_file()
        for name in names:
            self._has_metadata &= name != METADATA_FILE
            topic = topic_of(name) or ""
            known = self.log_file(name)
            self.arrival.forget(name)
            if known is None:
                self._journals.get(topic, set()).discard(name)
            elif (self._directory / name).exists():
                self._logs[topic][name] = known._replace(end_offset=0)
            else:
                self._forget(name)

    # ---- messages

    def apply(self, message: FileMessage) -> None:
        """Do what the message says. Raises BadFileName, BadStandbyMessage and Damaged."""
        kind, name, offset, data = message
        if self._open is None or self._open[0] != name or kind != codec.WRITE or not offset:
            self._close_file()  # it may be replaced or removed now
            check_name(name)
            self._check_place()
        if name.endswith(JOURNAL_SUFFIX):
            self._unfinished.changed(topic_of(name) or "")
        if kind == codec.WRITE:
            self._write(name, offset, data)
        elif kind == codec.PART:
            self._add_part(name, offset, data)
        elif kind == codec.BEGIN:
            self._begin(name)
        elif kind == codec.COMMIT:
            self._commit(name)
        else:
            self._remove(name)

    def _write(self, name: str, offset: int, data: memoryview) -> None:
        if offset == 0:
            self._remove(name)
        elif offset != self._end_of(name):
            raise BadStandbyMessage(f"a piece of {name} that begins at {offset} does not continue the file")
        is_log = is_log_name(name)
        if self._open is None:  # else the file that has just grown grows again, as with most messages
            path = self._directory / name
            self._has_new_names |= not path.exists()
            flags = os.O_RDWR
            # Not a log that was removed a moment ago: it would have a hole.
            if offset == 0 or not is_log:
                flags |= os.O_CREAT
            self._open = name, open_file(path, flags)
        write_at(self._open[1], offset, data)
        self._unsynced.add(name)
        if is_log:
            if offset == 0:
                self._inodes[name] = os.fstat(self._open[1]).st_ino
            self._note(name, offset, data, offset + len(data))
            files = self._logs[topic_of(name) or ""]
            self.arrival.feed(name, files[name].salt, offset, bytes(data))

    def _close_file(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _end_of(self, name: str) -> int:
        """Return the end of the records or entries of a file; preallocated space or a torn record may follow."""
        known = self.log_file(name)
        if known is not None:
            return known.end_offset
        path = self._directory / name
        if path.exists():
            return path.stat().st_size
        return 0

    def _note(self, name: str, offset: int, data: memoryview, end_offset: int) -> None:
        """Remember how much of a log file there is, after `data` was written at `offset`."""
        files = self._logs.setdefault(topic_of(name) or "", {})
        if offset == 0:
            files[name] = OfferedFile(
                FileHeader.unchecked(bytes(data[:FILE_HEADER_BYTES])).salt, end_offset, 0
            )
        elif name in files:
            files[name] = files[name]._replace(end_offset=end_offset)

    def _begin(self, name: str) -> None:
        write_bytes(self._new_path(name), b"")
        self._new.add(name)

    def _add_part(self, name: str, offset: int, data: memoryview) -> None:
        if name not in self._new:
            raise BadStandbyMessage(f"a part of a new version of {name} that was not begun")
        if offset != self._new_path(name).stat().st_size:
            raise BadStandbyMessage(
                f"a part of {name} that begins at {offset} does not continue the new version"
            )
        self._open = "", open_file(self._new_path(name), os.O_RDWR)
        write_at(self._open[1], offset, data)
        if is_log_name(name):
            self.arrival.feed(self._new_path(name).name, None, offset, bytes(data))

    def _new_path(self, name: str) -> Path:
        """Return the path of a new version; a start removes what is left of one."""
        suffix = COMPACT_SUFFIX if is_log_name(name) else ".tmp"
        return self._directory / f"{name}{suffix}"

    def _commit(self, name: str) -> None:
        if name not in self._new:
            raise BadStandbyMessage(f"the end of a new version of {name} that was not begun")
        path = self._new_path(name)
        self.departures.leaves(name, path)
        self._new.discard(name)
        if is_log_name(name):
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                self._note(name, 0, memoryview(file.read(FILE_HEADER_BYTES)), status.st_size)
                self._inodes[name] = status.st_ino
            self.arrival.renamed(path.name, name)
            self.replaced.add(name)
        os.rename(path, self._directory / name)
        self._unsynced.add(name)
        self._has_new_names = True
        self._note_journal(name)
        self._has_metadata |= name == METADATA_FILE
        if name == EPOCHS_FILE:
            saved = read_epochs(self._directory)
            self.epoch = saved.node if saved is not None else 0

    def _remove(self, name: str) -> None:
        self.departures.leaves(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Remove a file that is not needed, or is set aside."""
        self._unsynced.discard(name)
        self._inodes.pop(name, None)
        self.arrival.forget(name)
        self.replaced.add(name)
        topic = topic_of(name)
        if topic is not None:
            self._logs.get(topic, {}).pop(name, None)
            self._journals.get(topic, set()).discard(name)
            self._unfinished.changed(topic)
        (self._directory / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Forget unfinished new versions."""
        self._close_file()
        for name in self._new:
            self._new_path(name).unlink(missing_ok=True)
        self._new.clear()
        self._listed.clear()

    # ---- syncing

    def take_unsynced(self) -> tuple[list[Path], bool]:
        """Return the paths that must be synced, and True if the directory must be, too. Call `sync_failed` if that fails."""
        paths = [self._directory / name for name in self._unsynced]
        has_new_names, self._has_new_names = self._has_new_names, False
        self._unsynced.clear()
        return paths, has_new_names

    def sync_failed(self, paths: Iterable[Path], *, has_new_names: bool) -> None:
        """Take these back: nothing of them counts as synced before they are written again, and then synced."""
        names = [path.name for path in paths]
        self._unsynced.update(names)
        self.to_rewrite.update(names)
        self._has_new_names |= has_new_names

    # ---- topics

    def list_topic(self, files: TopicListing) -> None:
        """Handle what the primary has of a topic: set aside what only this copy has, and remove what is not needed."""
        topic = files.topic
        self._close_file()
        if not is_durable_name(topic):
            raise BadFileName(f"{topic!r} is no topic of a data path")
        if self.was_primary:
            self.departures.keep_unfinished()
        self._listed.add(topic)
        mine = self._logs.get(topic, {})
        limit = common_end(self.epochs.get(topic, ()), files.epochs)
        unmatched = [name for name in mine if not files.files.get(name)]
        is_other_log = limit == 0
        if self.was_primary and topic not in self._compared:  # this nsqd has written the log
            self._compared.add(topic)
            self.departures.keep_own(topic, unmatched, limit)
        elif limit is None:
            self.departures.keep_alone(unmatched, files.next_seq)
        elif not is_other_log:
            self.departures.keep_alone(unmatched, limit)
        for name in unmatched:
            if is_other_log or name not in files.files:
                self.departures.leaves(name, is_other_log=is_other_log)
                self._forget(name)
        for name in list(self._journals.get(topic, ())):
            if is_other_log or (name not in files.journals and ":" in name):
                self._remove(name)
        if files.epochs:
            self.epochs[topic] = files.epochs
        else:
            self.epochs.pop(topic, None)

    def end_list(self) -> None:
        """Remove the topics that the primary did not list, after their messages are set aside."""
        if self.was_primary:
            self.departures.keep_unfinished()
        for topic in (self._logs.keys() | self._journals.keys()) - self._listed:
            self.list_topic(TopicListing(topic))


def _offered(path: Path, *, verify: bool) -> tuple[OfferedFile, list[Range]]:
    """Return how much of a log file can be used, and the damaged ranges in it.

    `verify` checks the records, not only heads. Nothing can be used if the header is damaged, or if messages are missing.
    """
    try:
        file = LogFile.open(path)
    except Damaged:
        return OfferedFile(0, 0, 0), []
    try:
        recovered = recover_file(file, is_last=verify)
        # Behind it, it is a torn end.
        damaged = [each for each in recovered.damaged if each[0] < file.end_offset]
        is_usable = damaged or not recovered.gaps or not file.is_whole
        end_offset = file.end_offset if is_usable else 0
        return OfferedFile(file.salt, end_offset, 0), damaged
    finally:
        file.close()
