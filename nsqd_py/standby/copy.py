"""A standby's copy of its primary's files: writes what the stream says into the data path.

All names are checked, so that no message can write anywhere else. Files are written as nsqd writes them: records are
appended, a journal or a sparse file is replaced by another one under its name.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

from google_crc32c import extend

from nsqd_py.broker.metadata import METADATA_FILE
from nsqd_py.broker.state_files import CLOCK_FILE, STOP_FILE, read_epochs
from nsqd_py.diskqueue.epochs import EPOCHS_FILE, Epochs, common_end
from nsqd_py.diskqueue.files import COMPACT_SUFFIX, LogFile, parse_log_file_name, sync_directory
from nsqd_py.diskqueue.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.errors import NsqdError
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime.private_files import open_file
from nsqd_py.standby.messages import (
    BEGIN,
    CHECKED_BYTES,
    COMMIT,
    PART,
    REMOVE,
    WRITE,
    FileMessage,
    Offer,
    OfferedFile,
    OfferedLog,
    TopicFiles,
)

ASIDE_PREFIX = "standby-alone-"
_MOST_OPEN = 64


class BadName(NsqdError):
    """The primary names a file that is none of its data path."""


def topic_of(name: str) -> str | None:
    """Return the topic to which a file of a data path belongs; None if it belongs to none."""
    parsed = parse_log_file_name(name)
    if parsed is not None:
        return parsed[0]
    if name.endswith(JOURNAL_SUFFIX):
        return name.removesuffix(JOURNAL_SUFFIX).partition(":")[0]
    return None


def _is_durable_name(name: str) -> bool:
    return is_valid_name(name.encode()) and not is_ephemeral(name)


def check_name(name: str) -> None:
    """Raise BadName unless this is the name of a log, a journal, `nsqd.dat`, `nsqd.clock` or `nsqd.epochs`."""
    if name in (METADATA_FILE, CLOCK_FILE, EPOCHS_FILE):
        return
    topic = topic_of(name)
    channel = name.removesuffix(JOURNAL_SUFFIX).partition(":")[2] if name.endswith(JOURNAL_SUFFIX) else ""
    if topic is None or not _is_durable_name(topic) or (channel and not _is_durable_name(channel)):
        raise BadName(f"{name!r} is no file of a data path")


class Copy:
    """The files of a standby. Methods may raise OSError.

    epoch        when the nsqd that wrote them was promoted, see `nsqd_py.diskqueue.epochs`
    epochs       of the logs, by topic
    was_primary  True if these are the files of an nsqd that was a primary itself, until it began to follow
    alone_count  messages that this copy had and its primary has not; they are kept in a directory beside the logs
    """

    def __init__(self, directory: Path, aside_name: str, *, was_primary: bool) -> None:
        self.epoch = 0
        self.epochs: dict[str, Epochs] = {}
        self.was_primary = was_primary
        self.alone_count = 0
        self._directory = directory
        self._aside = directory / f"{ASIDE_PREFIX}{aside_name}"
        self._logs: dict[str, dict[str, OfferedFile]] = {}
        self._journals: dict[str, set[str]] = {}
        self._open: OrderedDict[str, int] = OrderedDict()
        self._new: dict[str, int] = {}  # descriptors of new versions, by the name that they will get
        self._unsynced: set[str] = set()
        self._has_new_names = False
        self._listed: set[str] = set()

    # ---- what there is

    def read(self) -> None:
        """Find out what there is. This reads the headers of all records, and checks those written last."""
        (self._directory / STOP_FILE).unlink(missing_ok=True)
        saved = read_epochs(self._directory)
        self.epoch, self.epochs = (saved.node, dict(saved.logs)) if saved is not None else (0, {})
        self._logs = {}
        names = sorted(os.listdir(self._directory))
        for name in names:
            self._note_journal(name)
        paths = [self._directory / name for name in names if parse_log_file_name(name) is not None]
        newest_s = max((path.stat().st_mtime for path in paths), default=0.0)
        for path in paths:
            parsed = parse_log_file_name(path.name)
            offered = _offered(path, verify=path.stat().st_mtime > newest_s - 600)
            if parsed is not None and offered is not None:
                self._logs.setdefault(parsed[0], {})[path.name] = offered

    def _note_journal(self, name: str) -> None:
        topic = topic_of(name)
        if topic is not None and name.endswith(JOURNAL_SUFFIX):
            self._journals.setdefault(topic, set()).add(name)

    def offer(self, http_address: str) -> Offer:
        """Return what the primary need not send."""
        logs = {
            topic: OfferedLog(self.epochs[topic], {name: self._checked(name, file) for name, file in files.items()})
            for topic, files in self._logs.items()
            if self.epochs.get(topic)
        }
        return Offer(self.epoch, http_address, logs)

    def _checked(self, name: str, file: OfferedFile) -> OfferedFile:
        start = max(0, file.end_offset - CHECKED_BYTES)
        with (self._directory / name).open("rb") as opened:
            opened.seek(start)
            return file._replace(checksum=extend(0, opened.read(file.end_offset - start)))

    # ---- messages

    def apply(self, message: FileMessage) -> None:
        """Do what the message says. Raises BadName."""
        kind, name, offset, data = message
        check_name(name)
        if kind == WRITE:
            self._write(name, offset, data)
        elif kind == BEGIN:
            self._begin(name)
        elif kind == PART:
            _write_all(self._new[name], data, offset)
        elif kind == COMMIT:
            self._commit(name)
        elif kind == REMOVE:
            self._remove(name)

    def _write(self, name: str, offset: int, data: memoryview) -> None:
        descriptor = self._descriptor(name)
        if offset == 0:
            os.ftruncate(descriptor, 0)
        _write_all(descriptor, data, offset)
        self._unsynced.add(name)
        if parse_log_file_name(name) is not None:
            self._note(name, offset, data)

    def _note(self, name: str, offset: int, data: memoryview) -> None:
        """Remember how much of a log file there is."""
        topic = topic_of(name)
        assert topic is not None
        files = self._logs.setdefault(topic, {})
        if offset == 0:
            files[name] = OfferedFile(FileHeader.unchecked(bytes(data[:FILE_HEADER_BYTES])).salt, len(data), 0)
        elif name in files:
            files[name] = files[name]._replace(end_offset=offset + len(data))

    def _descriptor(self, name: str) -> int:
        descriptor = self._open.get(name)
        if descriptor is None:
            path = self._directory / name
            self._has_new_names |= not path.exists()
            descriptor = self._open[name] = open_file(path, os.O_RDWR | os.O_CREAT)
            if len(self._open) > _MOST_OPEN:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(name)
        return descriptor

    def _begin(self, name: str) -> None:
        if name in self._new:
            os.close(self._new.pop(name))
        self._new[name] = open_file(self._new_path(name), os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def _new_path(self, name: str) -> Path:
        """Return the path of a new version; a start removes what is left of one."""
        suffix = COMPACT_SUFFIX if parse_log_file_name(name) is not None else ".tmp"
        return self._directory / f"{name}{suffix}"

    def _commit(self, name: str) -> None:
        self._close(name)
        descriptor = self._new.pop(name)
        is_log = parse_log_file_name(name) is not None
        try:
            head = os.pread(descriptor, FILE_HEADER_BYTES, 0)
            size_bytes = os.fstat(descriptor).st_size
            os.rename(self._new_path(name), self._directory / name)
        finally:
            os.close(descriptor)
        topic = topic_of(name)
        if is_log and topic is not None:
            self._logs.setdefault(topic, {})[name] = OfferedFile(FileHeader.unchecked(head).salt, size_bytes, 0)
        self._unsynced.add(name)
        self._has_new_names = True
        self._note_journal(name)
        if name == EPOCHS_FILE:
            saved = read_epochs(self._directory)
            self.epoch = saved.node if saved is not None else 0

    def _remove(self, name: str) -> None:
        self._close(name)
        self._unsynced.discard(name)
        topic = topic_of(name)
        if topic is not None:
            self._logs.get(topic, {}).pop(name, None)
            self._journals.get(topic, set()).discard(name)
        (self._directory / name).unlink(missing_ok=True)

    def _close(self, name: str) -> None:
        descriptor = self._open.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all files, and forget unfinished new versions."""
        for descriptor in (*self._open.values(), *self._new.values()):
            os.close(descriptor)
        for name in self._new:
            self._new_path(name).unlink(missing_ok=True)
        self._open.clear()
        self._new.clear()
        self._listed.clear()

    # ---- syncing

    def take_unsynced(self) -> tuple[list[Path], bool]:
        """Return the paths that must be synced, and True if the directory must be, too."""
        paths = [self._directory / name for name in self._unsynced]
        has_new_names, self._has_new_names = self._has_new_names, False
        self._unsynced.clear()
        return paths, has_new_names

    # ---- topics

    def list_topic(self, files: TopicFiles) -> None:
        """Handle what the primary has of a topic: set aside what only this copy has, and remove what is not needed."""
        topic = files.topic
        if not _is_durable_name(topic):
            raise BadName(f"{topic!r} is no topic of a data path")
        self._listed.add(topic)
        mine = self._logs.get(topic, {})
        limit = common_end(self.epochs.get(topic, ()), files.epochs)
        if limit is None:
            limit = files.next_seq
        unmatched = [name for name in mine if not files.files.get(name)]
        is_other_log = limit == 0
        if self.was_primary or not is_other_log:
            self._keep_alone(unmatched, limit)
        for name in unmatched:
            if is_other_log or name not in files.files:
                self._remove(name)
        for name in list(self._journals.get(topic, ())):
            if is_other_log or (name not in files.journals and ":" in name):
                self._remove(name)
        if files.epochs:
            self.epochs[topic] = files.epochs
        else:
            self.epochs.pop(topic, None)

    def end_list(self) -> None:
        """Remove the topics that the primary did not list, after their messages are set aside."""
        for topic in (self._logs.keys() | self._journals.keys()) - self._listed:
            self.list_topic(TopicFiles(topic))

    def _keep_alone(self, names: Iterable[str], limit: int) -> None:
        """Keep the files among these that have messages from the number `limit` on, and count these messages."""
        for name in names:
            count = _count_from(self._directory / name, limit)
            if count:
                self.alone_count += count
                self._aside.mkdir(exist_ok=True)
                os.link(self._directory / name, self._aside / name)
                sync_directory(self._aside)
                sync_directory(self._directory)


def sync_paths(paths: Iterable[Path], directory: Path | None) -> None:
    """Sync these files, and the names in the directory if given. Raises OSError. May run in a thread."""
    for path in paths:
        try:
            descriptor = open_file(path, os.O_RDWR)
        except FileNotFoundError:
            continue  # it was removed meanwhile
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    if directory is not None:
        sync_directory(directory)


def _write_all(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _offered(path: Path, *, verify: bool) -> OfferedFile | None:
    """Return how much of a log file can be used; None if it is damaged. `verify` checks the records, not only heads."""
    try:
        file = LogFile.open(path)
    except Damaged:
        return None
    try:
        recovered = recover_file(file, is_last=verify)
        is_damaged = any(start < file.end_offset for start, _ in recovered.damaged)  # behind it, it is a torn end
        if is_damaged or (recovered.gaps and file.is_whole):
            return None
        return OfferedFile(file.salt, file.end_offset, 0)
    finally:
        file.close()


def _count_from(path: Path, limit: int) -> int:
    """Return the number of messages of a log file with numbers from `limit` on."""
    try:
        file = LogFile.open(path)
    except Damaged:
        return 0
    try:
        recovered = recover_file(file, is_last=True)
        missing = sum(max(0, high - max(low, limit)) for low, high in recovered.gaps)
        return max(0, file.end_seq - max(limit, file.first_seq) - missing)
    finally:
        file.close()
