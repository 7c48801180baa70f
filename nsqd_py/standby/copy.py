"""A standby's copy of its primary's files: writes what the stream says into the data path.

All names are checked, so that no message can write anywhere else. Files are written as nsqd writes them: records are
appended, a journal or a sparse file is replaced by another one under its name.

`nsqd.standby` says that a data path is a copy, and whether the copy is complete. It is there from the beginning of the
first copy until the standby is promoted. nsqd does not serve such a directory: its messages are still those of the
primary. `nsqd.member` is the random id of a data path. It is not copied.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from google_crc32c import extend

from nsqd_py.broker.state_files import (
    CLOCK_FILE,
    METADATA_FILE,
    STANDBY_FILE,
    STOP_FILE,
    data_path_id,
    read_checked,
    read_epochs,
    write_checked,
)
from nsqd_py.diskqueue.files.log_file import COMPACT_SUFFIX, LogFile, parse_log_file_name, sync_directory
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epochs, common_end
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.journals.ranges import Range, common, count_of, union
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.errors import NsqdError
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime.documents import decode_fields
from nsqd_py.runtime.private_files import open_file, write_bytes
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby import messages
from nsqd_py.standby.aside import Aside, Unfinished, count_in, finished_in
from nsqd_py.standby.damage import ArrivalCheck, KnownFile
from nsqd_py.standby.messages import (
    BadStandbyMessage,
    FileMessage,
    GroupMember,
    Offer,
    OfferedFile,
    OfferedLog,
    TopicListing,
)


@dataclass(frozen=True, slots=True)
class StandbyState:
    """The state of a standby's data path.

    primary      address of the nsqd that it follows
    is_complete  False until the standby has had everything that the primary had; before that it cannot be promoted
    was_primary  True until then, if the files are also those of an nsqd that was a primary itself
    is_fenced    True if it follows because it was fenced, also without --standby-of
    """

    primary: str
    is_complete: bool
    was_primary: bool = False
    is_fenced: bool = False


def read_state(directory: Path) -> StandbyState | None:
    """Return the state of a standby's data path; None if it is none. Raises OSError."""
    return read_checked(directory / STANDBY_FILE, partial(decode_fields, StandbyState))


def write_state(directory: Path, state: StandbyState) -> None:
    """Write the state durably. Raises OSError."""
    write_checked(directory / STANDBY_FILE, asdict(state))


def remove_state(directory: Path) -> None:
    """Remove the state durably: the directory has its own messages from now on. Raises OSError."""
    (directory / STANDBY_FILE).unlink(missing_ok=True)
    sync_directory(directory)


def own_member(directory: Path, options: NsqdOptions) -> GroupMember:
    """Return this nsqd as a member of its group; its id is made at the first call. Raises OSError."""
    port = options.broadcast_tcp_port or int(options.tcp_address.rpartition(":")[2])
    return GroupMember(data_path_id(directory), f"{options.broadcast_address}:{port}")


_STATE_FILES = (METADATA_FILE, CLOCK_FILE, EPOCHS_FILE)
_SURE_AFTER_S = 2.0
_REWRITTEN_BYTES = 1024 * 1024


class BadFileName(NsqdError):
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
    """Raise BadFileName unless this is the name of a log, a journal, `nsqd.dat`, `nsqd.clock` or `nsqd.epochs`."""
    if name in _STATE_FILES:
        return
    topic = topic_of(name)
    channel = name.removesuffix(JOURNAL_SUFFIX).partition(":")[2] if name.endswith(JOURNAL_SUFFIX) else ""
    if topic is None or not _is_durable_name(topic) or (channel and not _is_durable_name(channel)):
        raise BadFileName(f"{name!r} is no file of a data path")


class Copy:
    """The files of a standby. Methods may raise OSError.

    Files grow at their end, or are replaced by a new version. Whatever else would happen to messages that were not
    finished, they are set aside first, see `Aside`.

    epoch        when the nsqd that wrote them was promoted, see `nsqd_py.diskqueue.journals.epochs`
    epochs       of the logs, by topic
    member       this nsqd in the group that shares its lease, for offers
    was_primary  True if these are the files of an nsqd that was a primary itself, until it began to follow
    alone_count  messages that were set aside and counted, since the primary has them no more and did not finish them
    kept_before  name of the directory with what an old primary had not finished when it began to follow
    arrival      checks the records that arrive
    replaced     names of files that were removed or replaced since the caller emptied this
    found_damage  damaged ranges that `read` found, by file, until the caller empties this
    to_rewrite    names of files whose last sync failed
    """

    def __init__(self, directory: Path, aside_name: str, *, was_primary: bool) -> None:
        self.was_primary = was_primary
        self.member: GroupMember | None = None
        self.alone_count = 0
        self.kept_before = ""
        self._directory = directory
        self._read_epochs()
        self._aside = Aside(directory, aside_name)
        self._compared: set[str] = set()  # topics of which what this nsqd had as a primary is set aside
        self._logs: dict[str, dict[str, OfferedFile]] = {}
        self._journals: dict[str, set[str]] = {}
        self._unfinished = Unfinished(directory, self._logs, self._journals)
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
        self._is_kept = False
        self._counted_from: dict[
            str, int
        ] = {}  # in `standby-alone-`: the number from which a file's messages are counted
        self._open: tuple[str, int] | None = None  # the file that grew last, and its descriptor

    # ---- what there is

    def read(self) -> None:
        """Find out what there is. This reads the headers of all records, and checks those written last."""
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
        paths = [self._directory / name for name in names if parse_log_file_name(name) is not None]
        newest_s = max((path.stat().st_mtime for path in paths), default=0.0)
        for path in paths:
            parsed, status = parse_log_file_name(path.name), path.stat()
            offered, damaged = _offered(path, verify=status.st_mtime > newest_s - 600)
            if damaged:
                self.found_damage[path.name] = damaged
            if parsed is not None:
                self._logs.setdefault(parsed[0], {})[path.name] = offered
                self._inodes[path.name] = status.st_ino

    def _read_epochs(self) -> None:
        saved = read_epochs(self._directory)
        self.epoch: int = saved.node if saved is not None else 0
        self.epochs: dict[str, Epochs] = dict(saved.logs) if saved is not None else {}

    def _note_journal(self, name: str) -> None:
        topic = topic_of(name)
        if topic is not None and name.endswith(JOURNAL_SUFFIX):
            self._journals.setdefault(topic, set()).add(name)

    def offer(self, http_address: str) -> Offer:
        """Return what the primary need not send."""
        logs = {
            topic: OfferedLog(
                self.epochs[topic], {name: self._checked(name, file) for name, file in files.items()}
            )
            for topic, files in self._logs.items()
            if self.epochs.get(topic)
        }
        return Offer(self.epoch, http_address, logs, member=self.member)

    def _checked(self, name: str, file: OfferedFile) -> OfferedFile:
        if not file.end_offset:  # it must be copied again
            return file
        start = max(0, file.end_offset - messages.CHECKED_BYTES)
        with (self._directory / name).open("rb") as opened:
            opened.seek(start)
            return file._replace(checksum=extend(0, opened.read(file.end_offset - start)))

    # ---- what another program does to the files

    def known_files(self) -> list[KnownFile]:
        """Return the files that must be there, without those that must be copied again."""
        known = [
            KnownFile(name, file.end_offset, self._inodes.get(name, 0))
            for files in self._logs.values()
            for name, file in files.items()
            if file.end_offset
        ]
        others = [name for names in self._journals.values() for name in names]
        if self._has_metadata:
            others.append(METADATA_FILE)
        return known + [KnownFile(name, 0, 0) for name in others]

    def log_names(self) -> list[str]:
        """Return the names of all log files."""
        return [name for files in self._logs.values() for name in files]

    def log_file(self, name: str) -> OfferedFile | None:
        """Return what is known of a log file; None if there is none of this name."""
        return self._logs.get(topic_of(name) or "", {}).get(name)

    def copy_again(self, names: Iterable[str]) -> None:
        """Let the primary send these files again after the next offer; until each is complete, the old one stays."""
        self._close_file()
        for name in names:
            self._has_metadata &= name != METADATA_FILE
            topic = topic_of(name) or ""
            known = self._logs.get(topic, {}).get(name)
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
        if self._open is None or self._open[0] != name or kind != messages.WRITE or not offset:
            self._close_file()  # it may be replaced or removed now
            check_name(name)
        if name.endswith(JOURNAL_SUFFIX):
            self._unfinished.changed(topic_of(name) or "")
        if kind == messages.WRITE:
            self._write(name, offset, data)
        elif kind == messages.PART:
            self._add_part(name, offset, data)
        elif kind == messages.BEGIN:
            self._begin(name)
        elif kind == messages.COMMIT:
            self._commit(name)
        else:
            self._remove(name)

    def _write(self, name: str, offset: int, data: memoryview) -> None:
        if offset == 0:
            self._remove(name)
        elif offset != self._end_of(name):
            raise BadStandbyMessage(f"a piece of {name} that begins at {offset} does not continue the file")
        is_log = parse_log_file_name(name) is not None
        if self._open is None:  # else the file that has just grown grows again, as with most messages
            path = self._directory / name
            self._has_new_names |= not path.exists()
            # Not a log that was removed a moment ago: it would have a hole.
            flags = os.O_RDWR | (os.O_CREAT if offset == 0 or not is_log else 0)
            self._open = name, open_file(path, flags)
        _write_at(self._open[1], offset, data)
        self._unsynced.add(name)
        if is_log:
            if offset == 0:
                self._inodes[name] = os.fstat(self._open[1]).st_ino
            self._note(name, offset, data, offset + len(data))
            self.arrival.feed(name, self._logs[topic_of(name) or ""][name].salt, offset, bytes(data))

    def _close_file(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
            self._open = None

    def _end_of(self, name: str) -> int:
        """Return the end of the records or entries of a file; preallocated space or a torn record may follow."""
        known = self._logs.get(topic_of(name) or "", {}).get(name)
        if known is not None:
            return known.end_offset
        path = self._directory / name
        return path.stat().st_size if path.exists() else 0

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
        _write_at(self._open[1], offset, data)
        if parse_log_file_name(name) is not None:
            self.arrival.feed(self._new_path(name).name, None, offset, bytes(data))

    def _new_path(self, name: str) -> Path:
        """Return the path of a new version; a start removes what is left of one."""
        suffix = COMPACT_SUFFIX if parse_log_file_name(name) is not None else ".tmp"
        return self._directory / f"{name}{suffix}"

    def _commit(self, name: str) -> None:
        if name not in self._new:
            raise BadStandbyMessage(f"the end of a new version of {name} that was not begun")
        path = self._new_path(name)
        self._leaves(name, path)
        self._new.discard(name)
        if parse_log_file_name(name) is not None:
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
        self._leaves(name)
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
        if not _is_durable_name(topic):
            raise BadFileName(f"{topic!r} is no topic of a data path")
        self._keep_what_is_not_finished()
        self._listed.add(topic)
        mine = self._logs.get(topic, {})
        limit = common_end(self.epochs.get(topic, ()), files.epochs)
        unmatched = [name for name in mine if not files.files.get(name)]
        is_other_log = limit == 0
        if self.was_primary and topic not in self._compared:  # this nsqd has written the log
            self._keep_own(topic, unmatched, limit)
        elif not is_other_log:
            self._keep_alone(unmatched, files.next_seq if limit is None else limit)
        for name in unmatched:
            if is_other_log or name not in files.files:
                self._leaves(name, is_other_log=is_other_log)
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
        self._keep_what_is_not_finished()
        for topic in (self._logs.keys() | self._journals.keys()) - self._listed:
            self.list_topic(TopicListing(topic))

    def end_round(self, now_s: float) -> int:
        """Keep what has left and is neither here nor finished now; return the number of messages, if it was counted.

        The round has the cursors of that time. Later ones may finish it: they are written every 0.1 s.
        """
        aside, before = self._aside, self.alone_count
        looked_at = [(now_s, each) for each in aside.leaving]
        aside.leaving = []
        while aside.unsure and aside.unsure[0][0] <= now_s - _SURE_AFTER_S:
            looked_at.append((0.0, aside.unsure.popleft()[1]))
        for since_s, each in looked_at:
            ranges = self._unfinished.left(each)
            if ranges and since_s:
                aside.unsure.append((since_s, each))
            elif ranges:
                counted = aside.counted.get(each.kept, [])
                aside.counted[each.kept] = union([*counted, *ranges])
                self.alone_count += count_of(aside.counted[each.kept]) - count_of(counted)
        needed = aside.counted.keys() | {each.kept for _, each in aside.unsure}
        for kept in {each.kept for _, each in looked_at} - needed:
            aside.drop(kept)
        return self.alone_count - before

    # ---- what is set aside

    def _keep_own(self, topic: str, unmatched: list[str], limit: int | None) -> None:
        """Set aside what this nsqd has written and the primary may not have.

        If its epochs do not continue those of this nsqd, that is everything, also what it says it has. A promotion
        continues them, at a message that this nsqd has, unless that was lost in a power cut.
        """
        self._compared.add(topic)
        names = sorted(
            path.name for path in self._directory.glob(f"{topic}.*.log") if topic_of(path.name) == topic
        )
        end = self._unfinished.bounds(topic, names[-1])[1] if names else 0
        if limit is None or limit > end:
            unmatched, limit = names, 0
        self._keep_alone(unmatched, limit)

    def _keep_alone(self, names: Iterable[str], limit: int) -> None:
        """Keep the files among these that have messages from the number `limit` on, and count these messages."""
        counts = {self._directory / name: count_in(self._directory / name, limit) for name in names}
        kept = [path for path, count in counts.items() if count]
        if kept:
            self._counted_from |= {
                path.name: min(limit, self._counted_from.get(path.name, limit)) for path in kept
            }
            self.alone_count += sum(counts.values())
            self._aside.keep(self._aside.alone, [*kept, *self._state_paths()])

    @property
    def set_aside_count(self) -> int:
        """`alone_count`, and the messages that have just left, which may turn out to be finished."""
        left = dict(self._aside.counted)
        for each in (*self._aside.leaving, *(each for _, each in self._aside.unsure)):
            left[each.kept] = [
                *left.get(each.kept, []),
                *(one for ranges in each.unfinished.values() for one in ranges),
            ]
        counted = sum(map(count_of, self._aside.counted.values()))
        return self.alone_count - counted + sum(count_of(union(ranges)) for ranges in left.values())

    def _keep_what_is_not_finished(self) -> None:
        """Before anything changes in what this nsqd had as a primary, keep what it had not finished, for a week."""
        if not self.was_primary or self._is_kept:
            return
        self._is_kept = True
        names = [
            name
            for topic, files in self._logs.items()
            for name in files
            if self._unfinished.in_file(topic, name)
        ]
        if names:
            self._aside.keep(
                self._aside.removed, [*(self._directory / name for name in names), *self._state_paths()]
            )
            self.kept_before = self._aside.removed.name

    def _state_paths(self) -> list[Path]:
        journals = [name for names in self._journals.values() for name in names]
        return [self._directory / name for name in (*journals, *_STATE_FILES)]

    def _leaves(self, name: str, replacement: Path | None = None, *, is_other_log: bool = False) -> None:
        """Set a file aside that is about to be removed or replaced, if it has something that was not finished."""
        path, topic = self._directory / name, topic_of(name)
        if topic is None or not path.exists():
            return
        if name.endswith(JOURNAL_SUFFIX):
            self._channel_leaves(topic, name, replacement)
        else:
            unfinished = self._unfinished.in_file(topic, name)
            if self._aside.has_alone(path):
                until = self._counted_from.pop(name, 0)
                unfinished = {
                    channel: below
                    for channel, ranges in unfinished.items()
                    if (below := common(ranges, [(0, until)]))
                }
            if unfinished:
                journals = [self._directory / journal for journal in self._journals.get(topic, ())]
                if is_other_log:
                    unfinished = {"": union([each for ranges in unfinished.values() for each in ranges])}
                self._aside.keep_removed([path, *journals], topic, unfinished)

    def _channel_leaves(self, topic: str, name: str, replacement: Path | None) -> None:
        """Set aside the journal of a channel that is deleted, with the log files of which it had not finished all."""
        if replacement is not None and finished_in(replacement) is not None:
            return
        path = self._directory / name
        for log_name in list(self._logs.get(topic, ())):
            unfinished = self._unfinished.in_file(topic, log_name).get(name)
            if unfinished and not self._aside.has_alone(self._directory / log_name):
                self._aside.keep_removed([self._directory / log_name, path], topic, {"": unfinished})


def sync_paths(paths: Iterable[Path], directory: Path | None, to_rewrite: Container[str] = ()) -> None:
    """Sync these files, and the names in the directory if given. Raises OSError. May run in a thread.

    Files in `to_rewrite` are written again first: after a sync that failed, the kernel takes their pages for written.
    """
    for path in paths:
        try:
            descriptor = open_file(path, os.O_RDWR)
        except FileNotFoundError:
            continue  # it was removed in the meantime
        try:
            if path.name in to_rewrite:
                _rewrite(descriptor)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    if directory is not None:
        sync_directory(directory)


def _rewrite(descriptor: int) -> None:
    offset = 0
    while piece := os.pread(descriptor, _REWRITTEN_BYTES, offset):
        _write_at(descriptor, offset, memoryview(piece))
        offset += len(piece)


def _write_at(descriptor: int, offset: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


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
        return OfferedFile(file.salt, file.end_offset if is_usable else 0, 0), damaged
    finally:
        file.close()
