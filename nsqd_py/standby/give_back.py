"""A primary gets back from its standbys what its data path has lost, before it serves.

A log file may be removed, cut or damaged while nsqd is stopped, and a power cut may take the end of a log. A standby has
the same files, byte for byte. So a start that finds something missing, or that follows no clean stop, asks the standbys
that it remembers in `nsqd.standbys`. It takes whole files, the damaged parts of files, and what comes behind the end of
its own, but only

- from a standby that was not promoted since, and whose copy is complete,
- of logs in the same epoch, and of the same version of a file, if the last bytes that both have are the same: two
  histories are never merged,
- records with right checksums.

The files are built under other names, checked and synced, and take their places when the broker has closed its logs; a
start in the same process then reads them. What no standby has stays lost, and is counted.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.state_files import (
    STANDBYS_FILE,
    read_checked,
    read_clean_stop,
    write_checked,
    write_clean_stop,
)
from nsqd_py.diskqueue.files.log_file import (
    BACK_SUFFIX,
    LogFile,
    log_file_name,
    parse_log_file_name,
    sync_directory,
)
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, common, count_of, ranges_of, union
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged
from nsqd_py.diskqueue.recovery import LogEnd, RecoveredFile, recover_file
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import create, open_file
from nsqd_py.runtime.threads import GreenletLock, in_thread
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.fetch import FetchFailed, FetchLink, RemoteFile, RemoteLog, is_same_history
from nsqd_py.standby.fetch_server import MOST_BYTES
from nsqd_py.standby.messages import CHECKED_BYTES, Offer

_MOST_REMEMBERED = 16
# A standby that does not answer delays the start by no more than this, for each of its addresses; one to which there is no
# connection by 1 s.
_ANSWER_TIMEOUT_S = 5.0
_LOOK_EVERY_S = 0.05
_LONGEST_REST_S = 20.0
_END_OF_NUMBERS = 1 << 62


class _SourceFailed(Exception):
    """A standby does not answer any more; the text says why."""


# ---- the standbys that a primary remembers


def remembered_standbys(directory: Path) -> list[list[str]]:
    """Return the addresses of the standbys that followed this data path, the newest first. Raises OSError.

    Each has one or two: that of its connection, and its broadcast address.
    """
    return read_checked(directory / STANDBYS_FILE, _decode_standbys) or []


class StandbyMemory:
    """Remembers the standbys that follow this nsqd, for its next start."""

    def __init__(self, directory: Path, threadpool: Any, log: Log) -> None:
        self._directory = directory
        self._threadpool = threadpool
        self._log = log
        self._lock = GreenletLock()

    def note(self, addresses: list[str]) -> None:
        """Remember a standby durably, as the newest, soon. A failure is logged."""
        gevent.spawn(self._note, addresses)

    def _note(self, addresses: list[str]) -> None:
        with self._lock:  # one thread at a time writes the file
            try:
                in_thread(self._threadpool, self._write, addresses)
            except (OSError, StartError) as error:
                self._log.error("STANDBY: failed to write %s - %s", STANDBYS_FILE, error)

    def _write(self, addresses: list[str]) -> None:
        """Runs in a thread."""
        known = remembered_standbys(self._directory)
        if known[:1] != [addresses]:
            others = [each for each in known if not set(each) & set(addresses)]
            write_checked(
                self._directory / STANDBYS_FILE, {"standbys": [addresses, *others][:_MOST_REMEMBERED]}
            )


def _decode_standbys(fields: dict[str, Any]) -> list[list[str]]:
    return [[str(address) for address in each] for each in fields["standbys"]]


# ---- what is wanted


def wanted_files(
    log: TopicLog, missing: list[Range], theirs: Iterable[RemoteFile], *, is_end_open: bool
) -> Iterator[tuple[RemoteFile, LogFile | None, int]]:
    """Yield the files of another copy of a log that have what this one lacks.

    With each comes the file of the same name here, if there is one, and the number at which it must end, since the next
    file begins. `is_end_open` is True if the other copy may go on where this one ends. Files that do not fit between
    those that are here are left out: their messages may be in files of another shape.
    """
    mine = {file.path.name: file for file in log.files}
    first_seqs = [file.first_seq for file in log.files]
    for file in theirs:
        parsed = parse_log_file_name(file.name)
        assert parsed is not None
        first_seq = parsed[1]
        place = bisect_right(first_seqs, first_seq)
        limit = first_seqs[place] if place < len(first_seqs) else _END_OF_NUMBERS
        goes_on = is_end_open and limit == _END_OF_NUMBERS
        own = mine.get(file.name)
        if own is None:
            is_free = not place or log.files[place - 1].end_seq <= first_seq
            if is_free and (goes_on or common([(first_seq, limit)], missing)):
                yield file, None, limit
        elif own.salt == file.salt:
            is_short = file.size_bytes > own.end_offset and (
                goes_on or bool(common([(own.end_seq, limit)], missing))
            )
            if is_short or common([(own.first_seq, own.end_seq)], missing):
                yield file, own, limit


def has_what_is_lost(broker: Broker, offer: Offer) -> bool:
    """True if a standby has files that this nsqd lacks, by its offer."""
    for name, offered in offer.logs.items():
        topic = broker.topics.get(name)
        log = topic.log if topic is not None else None
        if topic is None or log is None or not is_same_history(log.epochs, offered.epochs):
            continue
        missing = broker.missing.get(name, [])
        if topic.channels:
            lost = [each for channel in topic.channels.values() for each in ranges_of(channel.position.lost)]
            missing = common(missing, lost)
        is_end_open = broker.ends_at_start.get(name) == log.next_seq
        if not missing and not is_end_open:
            continue
        files = [
            RemoteFile(file, each.salt, each.end_offset)
            for file, each in offered.files.items()
            if _is_of(file, name)
        ]
        if any(wanted_files(log, missing, sorted(files), is_end_open=is_end_open)):
            return True
    return False


@dataclass(slots=True, eq=False)
class _Source:
    """A standby that gives something back. Methods block this greenlet, and raise OSError and NsqdError.

    addresses  under which it is remembered
    logs       its logs by topic
    """

    addresses: list[str]
    _options: NsqdOptions
    _address: str
    _link: FetchLink
    logs: dict[str, RemoteLog] = field(default_factory=dict)
    _used_s: float = field(default_factory=time.monotonic)

    def link(self) -> FetchLink:
        """Return a connection that was used a moment ago: the other side closes one that rests for long."""
        now_s = time.monotonic()
        if now_s - self._used_s > _LONGEST_REST_S:
            self._link.close()
            self._link = FetchLink(self._options, self._address)
        self._used_s = now_s
        return self._link

    def close(self) -> None:
        self._link.close()


@dataclass(slots=True)
class _Wanted:
    """A file to get back.

    own      the file that is here
    limit    the number at which it must end
    sources  the standbys that have this version
    """

    own: LogFile | None
    limit: int
    sources: list[tuple[_Source, RemoteFile]] = field(default_factory=list)


class ReturnedFile(NamedTuple):
    """A file that is complete under another name."""

    topic: str
    first_seq: int
    end_seq: int
    end_offset: int

    @property
    def name(self) -> str:
        return log_file_name(self.topic, self.first_seq)


@dataclass(slots=True)
class Returned:
    """Files that are complete under other names, and the number of messages that come back with them."""

    directory: Path
    files: list[ReturnedFile] = field(default_factory=list)
    count: int = 0

    def put_in_place(self) -> None:
        """Give the files their names. The broker must be closed. Raises OSError.

        The record of the clean stop then says that they are there: after a kill in between, the next start misses the
        others, and asks again.
        """
        ends = read_clean_stop(self.directory)
        for file in self.files:
            if file.topic in ends:
                ends[file.topic] = _with_file(ends[file.topic], file)
        write_clean_stop(self.directory, ends)
        for file in self.files:
            os.rename(self.directory / f"{file.name}{BACK_SUFFIX}", self.directory / file.name)
        sync_directory(self.directory)


def _with_file(end: LogEnd, file: ReturnedFile) -> LogEnd:
    """Return the end of a log that has this file too."""
    file_seqs = sorted({*end.file_seqs, file.first_seq})
    is_last = file_seqs[-1] == file.first_seq
    return LogEnd(max(end.next_seq, file.end_seq), file_seqs, file.end_offset if is_last else end.end_offset)


# ---- getting it


class GiveBack:
    """Asks the standbys for what a loaded broker lacks. Methods block this greenlet.

    is_end_open  True if the end of a log may be missing
    on_progress  called between two steps; what it raises ends the work
    """

    def __init__(
        self, broker: Broker, directory: Path, on_progress: Callable[[], None], *, is_end_open: bool
    ) -> None:
        self._broker = broker
        self._is_end_open = is_end_open
        self._directory = directory
        self._on_progress = on_progress
        self._sources: list[_Source] = []
        self._failed: list[_Source] = []

    @property
    def answered(self) -> list[list[str]]:
        """The addresses of the standbys that have given all that they have."""
        return [source.addresses for source in self._sources if source not in self._failed]

    def is_due(self) -> bool:
        """True if something is missing, or if the end of a log may be."""
        return self._is_end_open or any(self._broker.missing.values())

    def run(self, standbys: list[list[str]]) -> Returned:
        """Ask these standbys, and return what they gave."""
        returned = Returned(self._directory)
        self._broker.housekeeper.pause()
        try:
            self._list_all(standbys)
            for name, wanted in self._wanted().items():
                self._get_file(name, wanted, returned)
            if len(self.answered) == len(standbys):
                self._accept_unsure(returned)
        finally:
            for source in self._sources:
                source.close()
            self._broker.housekeeper.resume()
        return returned

    def _list_all(self, standbys: list[list[str]]) -> None:
        greenlets = [gevent.spawn(self._list, addresses) for addresses in standbys]
        try:
            while not all(greenlet.ready() for greenlet in greenlets):
                self._on_progress()
                gevent.joinall(greenlets, timeout=_LOOK_EVERY_S)
        finally:
            gevent.killall(greenlets)

    def _list(self, addresses: list[str]) -> None:
        """Note one standby with its logs, unless it cannot or must not be asked."""
        reasons = []
        for address in addresses:
            try:
                with gevent.Timeout(_ANSWER_TIMEOUT_S, TimeoutError("timed out")):
                    source = _Source(
                        addresses, self._broker.options, address, FetchLink(self._broker.options, address)
                    )
                    node = source.link().node()
                if node.epoch > self._broker.epoch or not node.is_complete:
                    source.close()
                    reasons.append(
                        f"{address} was promoted"
                        if node.is_complete
                        else f"the copy of {address} is not complete"
                    )
                    break
                source.logs.update(source.link().list_logs())
            except (OSError, NsqdError, ValueError, KeyError) as error:
                reasons.append(f"{address}: {error}")
            else:
                self._sources.append(source)
                return
        self._broker.log.warning(
            "STANDBY: cannot ask a standby for what may be missing here - %s", "; ".join(reasons)
        )

    def _wanted(self) -> dict[str, _Wanted]:
        found: dict[str, _Wanted] = {}
        for topic in list(self._broker.topics.values()):
            if topic.log is None:
                continue
            missing = self._broker.missing.get(topic.name, [])
            for source in self._sources:
                other = source.logs.get(topic.name)
                if other is None or not is_same_history(topic.log.epochs, other.epochs):
                    continue
                for file, own, limit in wanted_files(
                    topic.log, missing, other.files, is_end_open=self._is_end_open
                ):
                    found.setdefault(file.name, _Wanted(own, limit)).sources.append((source, file))
        return found

    def _get_file(self, name: str, wanted: _Wanted, returned: Returned) -> None:
        """Build one file, and add it to `returned` if it has something that is missing here."""
        path = self._directory / f"{name}{BACK_SUFFIX}"
        before: list[Range] = []
        try:
            if wanted.own is not None:
                _copy_file(wanted.own.path, path)
                with _Building(path) as building:
                    before = building.readable
            for source, file in sorted(wanted.sources, key=lambda one: one[1].size_bytes, reverse=True):
                self._on_progress()
                if source not in self._failed:
                    self._add(path, source, file, wanted.limit)
            if path.exists():
                with _Building(path) as building:
                    gained = count_of(building.readable) - count_of(before)
                    if wanted.own is None:
                        building.blank_damage()
                    building.finish()
                if gained > 0:
                    returned.files.append(building.as_returned(name))
                    returned.count += gained
                    return
        except (OSError, Damaged) as error:
            self._broker.log.error("STANDBY: cannot get %s back from a standby - %s", name, error)
        path.unlink(missing_ok=True)

    def _add(self, path: Path, source: _Source, file: RemoteFile, limit: int) -> None:
        """Write to a file what it lacks and a standby has, if the two have one history.

        If the standby fails, what it has given until then stays. Raises OSError and Damaged if the file cannot be written.
        """
        try:
            with _talking():
                end = source.link().end_of(file)
            if end.end_seq > limit:
                return
            if not path.exists():
                _write_new(path, self._pieces(source, file, 0, end.end_offset))
                return
            with _Building(path) as building:
                start, shared_end = building.shared(end.end_offset)
                if building.is_same(start, b"".join(self._pieces(source, file, start, shared_end))):
                    for low, high in building.damaged(end.end_offset):
                        building.write(low, self._pieces(source, file, low, high))
        except FetchFailed as error:  # it has another version by now
            self._broker.log.warning("STANDBY: cannot get %s back - %s", file.name, error)
        except _SourceFailed as error:
            self._failed.append(source)
            self._broker.log.warning(
                "STANDBY: %s gave only a part of %s - %s", source.addresses[0], file.name, error
            )

    def _pieces(self, source: _Source, file: RemoteFile, low: int, high: int) -> Iterator[bytes]:
        """Yield bytes of a file. Raises FetchFailed and _SourceFailed, and what `on_progress` raises."""
        while low < high:
            with _talking():
                data = source.link().fetch_bytes(file, low, min(high - low, MOST_BYTES))
            if not data:
                return
            yield data
            low += len(data)
            self._on_progress()

    def _accept_unsure(self, returned: Returned) -> None:
        """After a power cut, what no standby has was finished: positions may be older than the log."""
        for topic in self._broker.topics.values():
            unsure = self._broker.unsure.get(topic.name)
            if not unsure:
                continue
            back = [
                _numbers_of(file.name, self._directory) for file in returned.files if file.topic == topic.name
            ]
            got = SeqRanges()
            for low, high in union([each for ranges in back for each in ranges]):
                got.add_missing(low, high)
            left = [gap for low, high in unsure for gap in got.gaps(low, high)]
            for channel in topic.channels.values():
                channel.accept_lost(left)


def _is_of(name: str, topic: str) -> bool:
    parsed = parse_log_file_name(name)
    return parsed is not None and parsed[0] == topic


def _numbers_of(name: str, directory: Path) -> list[Range]:
    with _Building(directory / f"{name}{BACK_SUFFIX}") as building:
        return building.readable


class _Building:
    """A file that is being built. It is opened, and all its records are checked. Methods raise OSError and Damaged."""

    def __init__(self, path: Path) -> None:
        self._file = LogFile.open(path)
        self._recovered: RecoveredFile = recover_file(self._file, is_last=True)

    def __enter__(self) -> _Building:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def readable(self) -> list[Range]:
        """The messages in it that can be read."""
        present = SeqRanges(0)
        for low, high in self._recovered.gaps:
            present.add_missing(low, high)
        return list(present.gaps(self._file.first_seq, self._file.end_seq))

    def damaged(self, end_offset: int) -> list[Range]:
        """Return the bytes that are damaged, and those from its end up to `end_offset`."""
        own_end = self._file.end_offset
        places = [(low, min(high, end_offset)) for low, high in self._recovered.damaged if low < own_end]
        return [*places, (own_end, end_offset)] if end_offset > own_end else places

    def shared(self, end_offset: int) -> Range:
        """Return the last bytes that another copy has too, which ends at `end_offset`."""
        end = min(self._file.end_offset, end_offset)
        return max(FILE_HEADER_BYTES, end - CHECKED_BYTES), end

    def is_same(self, start: int, theirs: bytes) -> bool:
        """True if the undamaged bytes from `start` on are these.

        A log that was written to after it had lost its end has other messages from there on.
        """
        mine, other = bytearray(os.pread(self._file.fileno(), len(theirs), start)), bytearray(theirs)
        for low, high in self._recovered.damaged:
            blank = slice(max(low - start, 0), max(high - start, 0))
            mine[blank] = bytes(len(mine[blank]))
            other[blank] = bytes(len(other[blank]))
        return mine == other

    def write(self, offset: int, pieces: Iterable[bytes]) -> None:
        """Write bytes of another copy."""
        for data in pieces:
            if os.pwrite(self._file.fileno(), data, offset) != len(data):
                raise OSError(errno.ENOSPC, f"short write to {self._file.path.name}")
            offset += len(data)

    def as_returned(self, name: str) -> ReturnedFile:
        topic, first_seq = parse_log_file_name(name) or ("", 0)
        return ReturnedFile(topic, first_seq, self._file.end_seq, self._file.end_offset)

    def blank_damage(self) -> None:
        """Write zeros over damaged records, so that a start finds them, which reads the headers of most records only."""
        for low, high in self._recovered.damaged:
            self.write(low, [bytes(min(high, self._file.end_offset) - low)])

    def finish(self) -> None:
        """Cut off what comes behind the last record, and sync the file."""
        os.ftruncate(self._file.fileno(), self._file.end_offset)
        os.fsync(self._file.fileno())


@contextmanager
def _talking() -> Iterator[None]:
    """Raise _SourceFailed for an error of the connection to a standby."""
    try:
        yield
    except FetchFailed:
        raise
    except (OSError, NsqdError) as error:
        raise _SourceFailed(str(error)) from error


def _write_new(path: Path, pieces: Iterable[bytes]) -> None:
    with create(path) as file:
        for data in pieces:
            file.write(data)


def _copy_file(path: Path, copy: Path) -> None:
    with open(path, "rb", opener=open_file) as source, create(copy) as target:
        shutil.copyfileobj(source, target)
