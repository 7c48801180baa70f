"""`nsqd-py --backup-to` and `--restore-from`: a backup is a store that is written once.

`--backup-to` copies what a standby gets in its first two rounds into a directory, and writes a store from that: its
large log files as objects, the rest as one base. It is made under another name, and renamed when it is complete and
synced; in a bucket it is complete when it has a head. `--restore-from` without `--store` writes a backup, or what a
store has at this moment, into a new data path.

What is restored so has the messages of its origin, but no epochs: it is another nsqd, which can neither fence its origin
nor take its store or the lease of its group.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from nsqd_py.broker.data_path import DataPath
from nsqd_py.broker.state_files import BACKUP_FILE
from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.diskqueue.files.log_file import parse_log_file_name, sync_directory
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, Epoch
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX, read_journal
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, FileHeader
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.feed.feed import PIECE_BYTES
from nsqd_py.feed.pieces import Begin, Commit, Part, Piece, TopicListing, TopicsListed, Write
from nsqd_py.objects.calls import Changed, Missing, Objects
from nsqd_py.objects.opening import is_one_store, open_objects, parse_store_url
from nsqd_py.runtime.command import complain
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.runtime.private_files import DIRECTORY_MODE, making, open_file, read_bytes
from nsqd_py.runtime.threads import nothing
from nsqd_py.server.options import NsqdOptions
from nsqd_py.settings.declaration import BadOptions
from nsqd_py.standby.copies.data_path import topic_of
from nsqd_py.standby.copies.syncing import sync_paths
from nsqd_py.standby.follower import Follower, sentence
from nsqd_py.standby.group import check_group
from nsqd_py.standby.messages import Offer, Round
from nsqd_py.store.absent import absent_in, counts_text
from nsqd_py.store.files import PREFIX_BYTES
from nsqd_py.store.image import LogSource
from nsqd_py.store.layout import HEAD_NAME, WRITER_BYTES, BadObject, Head, StoredFile
from nsqd_py.store.log_bytes import crc_of, end_of
from nsqd_py.store.reading import not_complete_text, read_state
from nsqd_py.store.restoring.restoration import Incomplete, Restoration, joined
from nsqd_py.store.rounds import BASE, MARK, ROUND_BYTES, RoundObject, files_frame, piece_frame

# In the work directory: what the nsqd has sent, and the store that is made of it.
_COPY, _STORE = "copy", "store"
# A journal in the first round may say that a message has moved to a topic whose log was sent before; the second round
# has that log up to a later moment.
_ROUNDS = 2
# Damaged ranges that are named one by one.
_MOST_NAMED = 10
# The topics of a backup are listed as logs that begin here; what is restored has no epochs.
_EPOCHS = (Epoch(1, 0),)
_LAST_OF_LISTS = "1.0.0rc1"  # the last version whose backups had a list of their files


class BadBackup(NsqdError):
    """The backup cannot be made or restored; the text says why."""


def run(options: NsqdOptions) -> int:
    """Make or restore the backup, print a line, and return the exit status."""
    try:
        options.check_values()
        _check_usage(options)
        if options.backup_to:
            text, damage = _back_up(options)
        else:
            text, damage = _restore(options)
    except BadOptions as error:
        complain(f"nsqd-py: {error}")
        return 2
    except BlockingIOError:
        complain(f"nsqd-py: {options.backup_to or options.data_path} is in use by another nsqd-py")
        return 1
    except OSError as error:
        complain(f"nsqd-py: {error if error.filename else error.strerror or error}")
        return 1
    except NsqdError as error:
        complain(f"nsqd-py: {error}")
        return 1
    except KeyboardInterrupt:
        complain("nsqd-py: interrupted; nothing was kept")
        return 130
    print(text)
    if not damage:
        return 0
    complain(f"nsqd-py: {damage}")
    return 1


def _check_usage(options: NsqdOptions) -> None:
    if options.backup_to and options.restore_from:
        raise BadOptions("--backup-to and --restore-from exclude each other")
    if options.restore_from and not options.data_path:
        raise BadOptions("--restore-from needs --data-path, the new directory to restore into")
    if options.backup_to and not options.standby_of:
        raise BadOptions("--backup-to needs --standby-of, the TCP address of the nsqd to copy")
    place = options.backup_to or options.restore_from
    if place.endswith(".tar.zst"):
        raise BadOptions("a backup is a directory: name one, and pack or unpack it with tar")
    if _is_url(place):
        try:
            parse_store_url(place)
        except ValueError as error:
            raise BadOptions(f"{place}: {error}") from error


def check_with_store(options: NsqdOptions) -> str:
    """Raise BadOptions if an nsqd with a store must restore another one. Return no warning."""
    if not is_one_store(options.restore_from, options.store):
        raise BadOptions(
            f"--restore-from={options.restore_from} must be the same as --store={options.store}, or be used without it: "
            "then it restores into --data-path, and ends"
        )
    return ""


def refuse(directory: Path) -> None:
    """Raise StartError for a data path that is a backup, or that was not restored completely."""
    raise StartError(
        f"{os.path.abspath(directory)} is a backup, or was not restored completely: restore it into a new directory, "
        "with --restore-from and --data-path"
    )


def _is_url(place: str) -> bool:
    return "://" in place


def _objects_of(options: NsqdOptions, place: str) -> Objects:
    """Return the objects of a backup, which is named by a URL, or by a directory."""
    url = place if _is_url(place) else f"file://{os.path.abspath(place)}"
    return open_objects(url, options.store_endpoint)


# ---- making one


class _Complete(Exception):
    """All rounds of a backup have ended."""


class _FirstRounds(Follower):
    """A follower that ends after _ROUNDS. It acknowledges nothing, so that no publisher relies on it."""

    def take(self) -> None:
        """Write what the primary has, and sync it."""
        try:
            self._follow()
        except _Complete:
            sync_paths(*self._unsynced())
        finally:
            self._close_connection()

    def _offer(self) -> Offer:
        return replace(super()._offer(), is_backup=True)

    def _note_store(self) -> None:
        """A backup is no standby, and has no state."""

    def _acknowledge(self) -> None:
        """A backup is synced at its end."""

    def _end_round(self, message: Round) -> None:
        if message.number >= _ROUNDS:
            raise _Complete


def _back_up(options: NsqdOptions) -> tuple[str, str]:
    """Make the backup. Return what was made, and a sentence about the damage in it, empty if there is none."""
    # It listens nowhere, and competes for no lease.
    options = options.replace(tcp_address="", http_address="", https_address="", lease="")
    check_group(options)
    target = options.backup_to
    if _is_url(target):
        with tempfile.TemporaryDirectory(prefix="nsqd-backup-") as work:
            objects = _objects_of(options, target)
            count, size_bytes, damage = _make(options, Path(work), objects)
    else:
        count, size_bytes, damage = _make_directory(options, Path(target))
    text = f"{target} is a backup of {options.standby_of}: {count} files, {size_bytes} bytes"
    if not damage:
        return text, ""
    return text, f"the files of {options.standby_of} are damaged, and so is their backup: {damage}"


def _make_directory(options: NsqdOptions, target: Path) -> tuple[int, int, str]:
    """Make a backup as a new directory, which gets its name when it is complete."""
    work = Path(f"{str(target).rstrip('/')}.incomplete")
    with making(work, is_own=True) as descriptor:
        try:
            if os.path.lexists(target):
                raise BadBackup(f"{target} exists already: choose another --backup-to")
            _remove_trees(descriptor)
            os.mkdir(_STORE, DIRECTORY_MODE, dir_fd=descriptor)
            made = _make(options, work, open_objects(f"file://{(work / _STORE).absolute()}"))
            os.rename(_STORE, target, src_dir_fd=descriptor)
            sync_directory(target.parent)
        finally:
            _remove_trees(descriptor)
            with suppress(OSError):  # it has files of another user
                work.rmdir()
    return made


def _remove_trees(descriptor: int) -> None:
    for name in (_COPY, _STORE):
        shutil.rmtree(name, ignore_errors=True, dir_fd=descriptor)


def _make(options: NsqdOptions, work: Path, objects: Objects) -> tuple[int, int, str]:
    """Write a backup. Return the number and the bytes of its files, and the damage in them as text."""
    if _has_head(objects):
        raise BadBackup(f"{options.backup_to} has a store already: choose another --backup-to")
    copy = work / _COPY
    os.mkdir(copy, DIRECTORY_MODE)
    try:
        log = Log(level=FATAL)
        nsqd = _FirstRounds(options, copy, DataPath(copy, log), None, log, lambda: "")
        nsqd.take()
        (copy / EPOCHS_FILE).unlink(missing_ok=True)
        for path in copy.iterdir():
            if path.is_dir():  # the copy has set aside what was deleted in the meantime
                shutil.rmtree(path)
        if nsqd.only_stored:
            _add_stored(options, copy, nsqd.only_stored)
        damage = _damage_in(copy)
        sizes = [path.stat().st_size for path in copy.iterdir()]
        _StoreWriter(objects, copy, options.standby_of).write()
    except Exception as error:
        raise BadBackup(f"the backup of {options.standby_of} is not complete: {sentence(error)}") from error
    return len(sizes), sum(sizes), damage


def _add_stored(options: NsqdOptions, copy: Path, only_stored: Mapping[str, TopicListing]) -> None:
    """Add the log files to a copy that nsqd has only in its store. Raises BadBackup without --store, or if that lacks some."""
    store = next(iter(only_stored.values())).store
    if is_one_store(options.store, store):
        objects = _objects_of(options, store)
        image = read_state(objects, None, copy).image
        restoration = Restoration(copy, objects, nothing, Log(level=FATAL))
        for topic, absent in absent_in(copy).items():
            if topic in only_stored:
                needed = [source for source in image.log_files(topic) if _overlaps(source, absent)]
                restoration.fetch(source for source in needed if not (copy / source.name).exists())
        if restoration.failed:
            raise BadBackup(next(iter(restoration.failed.values())))
    left = absent_in(copy)
    missing = {topic: left[topic] for topic in only_stored if topic in left}
    if missing:
        raise BadBackup(
            f"{counts_text(missing)} that are not finished are only in its store {store}: give "
            f"--store={store} too, or restore the store instead, into another data path with --restore-from={store}"
        )


def _overlaps(source: LogSource, ranges: list[Range]) -> bool:
    """True if a log file that a store has may have messages of these ranges."""
    end_seq = ranges[-1][1]
    if source.stored is not None and source.tail is None:
        end_seq = source.stored.end_seq
    return any(source.first_seq < high and low < end_seq for low, high in ranges)


def _has_head(objects: Objects) -> bool:
    try:
        objects.get(HEAD_NAME)
    except Missing:
        return False
    return True


class _StoreWriter:
    """Writes a store from a copy of a data path, once."""

    def __init__(self, objects: Objects, directory: Path, node: str) -> None:
        self._objects = objects
        self._directory = directory
        self._head = Head(
            os.urandom(WRITER_BYTES).hex(), 1, os.urandom(WRITER_BYTES).hex(), node, base=1, closed=True
        )
        self._number = 0

    def write(self) -> None:
        """Write everything, the head last. Raises OSError, and the errors of `Objects`."""
        pending: list[bytes] = []
        for frame in self._frames():
            if pending and sum(map(len, pending)) + len(frame) > ROUND_BYTES:
                self._put(pending, 0)
                pending = []
            pending.append(frame)
        self._put(pending, MARK)
        try:
            self._objects.swap(HEAD_NAME, self._head.encode(), None)
        except Changed as error:
            raise BadBackup("another one was made there in the meantime") from error

    def _put(self, frames: list[bytes], flags: int) -> None:
        self._number += 1
        if self._number == 1:
            flags |= BASE
        payload = b"".join(frames)
        made = RoundObject(self._number, 1, self._head.writer, time.time_ns(), flags, payload)
        self._objects.create(made.name, made.encode())

    def _frames(self) -> Iterator[bytes]:
        paths = sorted(self._directory.iterdir())
        stored = {path.name: self._put_log(path) for path in paths if self._is_large_log(path)}
        yield files_frame(stored.values())
        by_topic: dict[str, list[str]] = defaultdict(list)
        for path in paths:
            topic_name = topic_of(path.name)
            if topic_name:
                by_topic[topic_name].append(path.name)
        for topic, own in sorted(by_topic.items()):
            ends = {}
            for name in own:
                if parse_log_file_name(name) is not None:
                    ends[name] = stored[name].size_bytes if name in stored else 0
            journals = [name for name in own if name.endswith(JOURNAL_SUFFIX)]
            yield piece_frame(TopicListing(topic, _EPOCHS, 0, ends, journals))
        yield piece_frame(TopicsListed())
        for path in paths:
            if path.name not in stored:
                yield from map(piece_frame, _pieces_of(path))

    @staticmethod
    def _is_large_log(path: Path) -> bool:
        if parse_log_file_name(path.name) is None:
            return False
        return path.stat().st_size >= PREFIX_BYTES

    def _put_log(self, path: Path) -> StoredFile:
        """Put a log file as an object, and return what the base says of it."""
        topic, first_seq = parse_log_file_name(path.name) or ("", 0)
        size_bytes = path.stat().st_size
        with open(path, "rb", opener=open_file) as file:
            salt = FileHeader.unchecked(file.read(FILE_HEADER_BYTES)).salt
            file.seek(0)
            crc = crc_of(file, size_bytes)
        # Those of a file whose header is damaged are unknown.
        end_seq, newest_ns = end_of(path) or (first_seq, 0)
        stored = StoredFile(
            topic, first_seq, salt, size_bytes, crc, True, end_seq, 0, 0, 0, newest_ns, self._head.epoch
        )
        self._objects.put_file(stored.name, path, size_bytes)
        path.unlink()  # a backup so needs the space of one copy, and of one file
        return stored


def _pieces_of(path: Path) -> Iterator[Piece]:
    """Yield a file in pieces."""
    data = read_bytes(path)
    starts = range(0, len(data), PIECE_BYTES)
    if parse_log_file_name(path.name) is not None:
        for start in starts:
            yield Write(path.name, start, data[start : start + PIECE_BYTES])
        return
    yield Begin(path.name)
    for start in starts:
        yield Part(path.name, start, data[start : start + PIECE_BYTES])
    yield Commit(path.name)


# ---- the records in it


def _damage_in(directory: Path) -> str:
    """Return the ranges of logs and journals that have no valid record, as text; empty if all is valid. Raises OSError."""
    ranges = []
    for path in sorted(directory.iterdir()):
        for start, end in _damaged_ranges(path):
            ranges.append(f"{path.name}: {end - start} bytes at {start}")
    return joined(ranges, _MOST_NAMED, "places")


def _damaged_ranges(path: Path) -> Iterable[Range]:
    if parse_log_file_name(path.name) is not None:
        return damage_in(path)
    if path.name.endswith(JOURNAL_SUFFIX):
        return read_journal(read_bytes(path), with_waiting=False).damaged
    return ()


# ---- restoring it


def _restore(options: NsqdOptions) -> tuple[str, str]:
    """Restore the backup. Return what was made, and a sentence about the damage in it, empty if there is none."""
    source = options.restore_from
    target = Path(options.data_path)
    is_new = not os.path.lexists(target)
    with making(target) as descriptor:
        if not set(os.listdir(descriptor)) <= {"lost+found"}:  # a new file system has that
            raise BadBackup(f"{target} is not empty: restore into a new directory")
        try:
            count, lost = _write_files(options, source, target)
            damage = _damage_in(target)
            absent = absent_in(target)
        except BaseException as error:
            for name in set(os.listdir(descriptor)) - {"lost+found"}:
                os.unlink(name, dir_fd=descriptor)
            if is_new:
                target.rmdir()
            if not isinstance(error, Exception):
                raise
            raise BadBackup(f"{source} cannot be restored: {error}") from error
    text = f"{target} has the {count} files of {source}: start nsqd with --data-path={target}"
    if lost:
        return text, f"{source} is damaged, and {lost}"
    if not damage and absent:
        return text, (
            f"{counts_text(absent)} that were not finished are not in {source}: they were lost before it was "
            "made, or only in the store of that nsqd (--restore-from that store instead)"
        )
    if not damage:
        return text, ""
    return text, f"they were damaged when {source} was made, and what cannot be read is missing: {damage}"


def _write_files(options: NsqdOptions, source: str, target: Path) -> tuple[int, str]:
    """Write the files of a backup, or of a store as it is now. Return their number, and a sentence about what is missing."""
    if not _is_url(source):
        if not Path(source).is_dir():
            raise BadBackup("it is no directory: unpack an archive with tar first")
        if os.path.lexists(Path(source) / BACKUP_FILE):
            raise BadBackup(
                f"it is a backup of nsqd-py {_LAST_OF_LISTS} or an earlier version, which restores it"
            )
    objects = _objects_of(options, source)
    damage: list[BadObject] = []
    head, image = read_state(objects, damage.append, target)
    if damage and not image.base:
        raise damage[0]
    if not (image.mark or head.is_backup):
        raise BadBackup(f"it {not_complete_text(head)}")
    if not image.mark:
        raise BadBackup("it is not complete: its base has no end")
    image.small.pop(EPOCHS_FILE, None)
    restoration = Restoration(target, objects, nothing, Log(level=FATAL))
    lost = ""
    try:
        restoration.run(image, is_complete=True)
    except Incomplete as error:
        if head.is_backup:  # another one may be whole
            raise
        lost = str(error)
    restoration.end()
    for text in [*map(str, damage), *restoration.failed.values()]:
        complain(f"nsqd-py: {text}")
    return len(set(os.listdir(target)) - {"lost+found"}), lost
