"""A primary gets back from its standbys what its data path has lost, before it serves.

`StandbyMemory` remembers the standbys, `needed_files` compares a log with theirs, and `GiveBack` gets the files.

A log file may be removed, cut or damaged while nsqd is stopped, and a power cut may take the end of a log. A standby has
the same files, byte for byte. So a start that finds something missing, or that follows no clean stop, asks the standbys
that it remembers in `nsqd.standbys`. It takes whole files, the damaged parts of files, and what comes behind the end of
its own, but only

- from a standby that was not promoted since, and whose copy is complete,
- of logs in the same epoch, or in an earlier one of this log, up to its end (`shared_end`), and of the same version of a file,
  if the last bytes that both have are the same: two histories are never merged,
- records with right checksums.

With a lease, each load of a primary begins an epoch. One in which nothing was written yet ends when more of the epoch before
comes back.

The files are built under other names, checked and synced, and get their names when the broker has closed its logs; a
start in the same process then reads them. What no standby has stays lost, and is counted.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gevent
from gevent.pool import Group

from nsqd_py.broker.broker import Broker
from nsqd_py.broker.state_files import STANDBYS_FILE, read_checked, write_checked
from nsqd_py.diskqueue.files.log_file import BACK_SUFFIX, LogFile, parse_log_file_name, topic_of_log
from nsqd_py.diskqueue.journals.epochs import Epochs, common_end
from nsqd_py.diskqueue.journals.ranges import Range, common, count_of, minus, ranges_of
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import Damaged
from nsqd_py.errors import NsqdError, StartError
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import GreenletLock, in_thread
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.messages import Offer
from nsqd_py.standby.repairs.fetch import FetchFailed, FetchLink, RemoteFile, RemoteLog
from nsqd_py.standby.repairs.fetch_server import MOST_BYTES
from nsqd_py.standby.repairs.rebuilding import (
    RebuiltFile,
    Returned,
    ReturnedFile,
    copy_file,
    numbers_in,
    write_new,
)

_MOST_REMEMBERED = 16
# A standby that does not answer delays the start by no more than this, for each of its addresses; one to which there is no
# connection by 1 s.
_ANSWER_TIMEOUT_S = 5.0
_POLL_INTERVAL_S = 0.05
_MAX_IDLE_S = 20.0
_END_OF_NUMBERS = 1 << 62


# A file that a standby has, with an address of the standby.
OfferedBack = tuple[str, RemoteFile]


class _SourceFailed(Exception):
    """A standby does not answer any more; the text says why."""


# ---- the standbys that a primary remembers


def remembered_standbys(directory: Path) -> list[list[str]]:
    """Return the addresses of the standbys that followed this data path, the newest first. Raises OSError.

    Each standby has one or two: that of its connection, and its broadcast address.
    """
    return read_checked(directory / STANDBYS_FILE, _decode_standbys) or []


@dataclass(eq=False, repr=False)
class StandbyMemory:
    """Remembers the standbys that follow this nsqd, for its next start."""

    _directory: Path
    _threadpool: Any
    _log: Log
    _lock: GreenletLock = field(default_factory=GreenletLock)
    _notes: Group = field(default_factory=Group)

    def note(self, addresses: list[str]) -> None:
        """Remember a standby durably, as the newest, soon. A failure is logged."""
        self._notes.spawn(self._note, addresses)

    def settle(self) -> None:
        """Return when all are written: a start that follows at once asks them. Blocks this greenlet."""
        self._notes.join()

    def _note(self, addresses: list[str]) -> None:
        with self._lock:  # one thread at a time writes the file
            try:
                in_thread(self._threadpool, self._write, addresses)
            except (OSError, StartError) as error:
                self._log.error("STANDBY: failed to write %s - %s", STANDBYS_FILE, error)

    def _write(self, addresses: list[str]) -> None:
        """Write the file. Runs in a thread."""
        known = remembered_standbys(self._directory)
        if known[:1] != [addresses]:
            others = [each for each in known if not set(each) & set(addresses)]
            write_checked(
                self._directory / STANDBYS_FILE, {"standbys": [addresses, *others][:_MOST_REMEMBERED]}
            )


def _decode_standbys(fields: dict[str, Any]) -> list[list[str]]:
    return [[str(address) for address in each] for each in fields["standbys"]]


# ---- the files that a primary needs


def needed_files(
    log: TopicLog,
    missing: Sequence[Range],
    theirs: Iterable[RemoteFile],
    *,
    is_end_open: bool,
    end: int = _END_OF_NUMBERS,
) -> Iterator[tuple[RemoteFile, LogFile | None, int]]:
    """Yield the files of another copy of a log that have what this one lacks.

    With each comes the file of the same name here, if there is one, and the number at which it must end, since the next
    file begins. `is_end_open` is True if the other copy may go on where this one ends, and from the number `end` on, it has
    other messages. Files that do not fit between those that are here are left out: their messages may be in files of
    another shape.
    """
    mine = {file.name: file for file in log.files}
    first_seqs = [file.first_seq for file in log.files]
    for file in theirs:
        parsed = parse_log_file_name(file.name)
        assert parsed is not None
        first_seq = parsed[1]
        index = bisect_right(first_seqs, first_seq)
        following = first_seqs[index] if index < len(first_seqs) else _END_OF_NUMBERS
        limit = min(following, end)
        goes_on = is_end_open and limit == _END_OF_NUMBERS
        if first_seq >= end:
            continue
        own = mine.get(file.name)
        if own is None:
            is_free = not index or log.files[index - 1].end_seq <= first_seq
            if is_free and (goes_on or common([(first_seq, limit)], missing)):
                yield file, None, limit
        elif own.salt == file.salt:
            is_short = file.size_bytes > own.end_offset and (
                goes_on or bool(common([(own.end_seq, limit)], missing))
            )
            if is_short or common([(own.first_seq, own.end_seq)], missing):
                yield file, own, limit


def shared_end(log: TopicLog, theirs: Epochs, *, begins_epoch: bool) -> int:
    """Return the number up to which another copy has the messages of this log, as far as it has them; 0 for another log.

    begins_epoch  the next load begins an epoch, so that one without messages may end
    """
    end = common_end(theirs, log.epochs)
    if end is None:
        return _END_OF_NUMBERS
    is_unwritten = end >= log.next_seq > 0
    return _END_OF_NUMBERS if is_unwritten and begins_epoch else end


def lost_files(broker: Broker, offer: Offer, *, begins_epoch: bool) -> set[RemoteFile]:
    """Return the files of a standby that have what this nsqd lacks, by its offer. `begins_epoch` is that of `shared_end`.

    Their size is 0 where it does not matter, since a file here is as long: then it is the same at each offer.
    """
    found = set()
    for name, offered in offer.logs.items():
        topic = broker.topics.get(name)
        log = topic.log if topic is not None else None
        if topic is None or log is None:
            continue
        end = shared_end(log, offered.epochs, begins_epoch=begins_epoch)
        missing = broker.losses.missing(name)
        if topic.channels:
            lost = [each for channel in topic.channels.values() for each in ranges_of(channel.position.lost)]
            missing = common(missing, lost)
        is_end_open = broker.losses.is_end_open(name, log.next_seq)
        if not missing and not is_end_open:
            continue
        files = [
            RemoteFile(file, each.salt, each.end_offset)
            for file, each in offered.files.items()
            if topic_of_log(file) == name
        ]
        for file, own, _ in needed_files(log, missing, sorted(files), is_end_open=is_end_open, end=end):
            is_longer = own is None or file.size_bytes > own.end_offset
            found.add(file if is_longer else file._replace(size_bytes=0))
    return found


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
        """Return a connection that was used a moment ago: the other side closes one that is idle for long."""
        now_s = time.monotonic()
        if now_s - self._used_s > _MAX_IDLE_S:
            self._link.close()
            self._link = FetchLink(self._options, self._address)
        self._used_s = now_s
        return self._link

    def close(self) -> None:
        self._link.close()


@dataclass(slots=True)
class _NeededFile:
    """A file to get back.

    own      the file that is here
    limit    the number at which it must end
    sources  the standbys that have this version
    """

    own: LogFile | None
    limit: int
    sources: list[tuple[_Source, RemoteFile]] = field(default_factory=list)


# ---- getting it


@dataclass(eq=False, repr=False)
class GiveBack:
    """Asks the standbys for what a loaded broker lacks. Methods block this greenlet.

    _on_progress  called between two steps; what it raises ends the work
    is_end_open   True if the end of a log may be missing
    begins_epoch  that of `shared_end`
    """

    _broker: Broker
    _directory: Path
    _on_progress: Callable[[], None]
    is_end_open: bool
    begins_epoch: bool
    _sources: list[_Source] = field(default_factory=list)
    _failed: list[_Source] = field(default_factory=list)

    @property
    def answered(self) -> list[list[str]]:
        """The addresses of the standbys that have given all that they have."""
        return [source.addresses for source in self._sources if source not in self._failed]

    def is_due(self) -> bool:
        """True if something is missing, or if the end of a log may be."""
        return self.is_end_open or self._broker.losses.has_missing

    def run(self, standbys: list[list[str]]) -> Returned:
        """Ask these standbys, and return what they gave."""
        returned = Returned(self._directory)
        self._broker.housekeeper.pause()
        try:
            self._list_all(standbys)
            for name, needed in self._needed_files().items():
                self._get_file(name, needed, returned)
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
                gevent.joinall(greenlets, timeout=_POLL_INTERVAL_S)
        finally:
            gevent.killall(greenlets)

    def _list(self, addresses: list[str]) -> None:
        """Note one standby with its logs, unless it cannot or must not be asked."""
        reasons = []
        options = self._broker.options
        for address in addresses:
            try:
                with gevent.Timeout(_ANSWER_TIMEOUT_S, TimeoutError("timed out")):
                    source = _Source(addresses, options, address, FetchLink(options, address))
                    node = source.link().node()
                if not node.is_complete:
                    source.close()
                    reasons.append(f"the copy of {address} is not complete")
                    break
                if node.epoch > self._broker.logs.node_epoch:
                    source.close()
                    reasons.append(f"{address} was promoted")
                    break
                source.logs.update(source.link().list_logs())
                if not self._has_followed(source):
                    source.close()
                    reasons.append(f"{address} has no log of this nsqd: it is another one now")
                    continue
            except (OSError, NsqdError, ValueError, KeyError) as error:
                reasons.append(f"{address}: {error}")
            else:
                self._sources.append(source)
                return
        self._broker.log.warning(
            "STANDBY: cannot ask a standby for what may be missing here - %s", "; ".join(reasons)
        )

    def _has_followed(self, source: _Source) -> bool:
        """True if it has a log of this nsqd; at an address that it had, there may be another nsqd now."""
        for topic in self._broker.topics.values():
            theirs = source.logs.get(topic.name)
            if topic.log is not None and theirs is not None and set(topic.log.epochs) & set(theirs.epochs):
                return True
        return False

    def _needed_files(self) -> dict[str, _NeededFile]:
        found: dict[str, _NeededFile] = {}
        for topic in list(self._broker.topics.values()):
            if topic.log is None:
                continue
            missing = self._broker.losses.missing(topic.name)
            for source in self._sources:
                other = source.logs.get(topic.name)
                if other is None:
                    continue
                end = shared_end(topic.log, other.epochs, begins_epoch=self.begins_epoch)
                for file, own, limit in needed_files(
                    topic.log, missing, other.files, is_end_open=self.is_end_open, end=end
                ):
                    found.setdefault(file.name, _NeededFile(own, limit)).sources.append((source, file))
        return found

    def _get_file(self, name: str, needed: _NeededFile, returned: Returned) -> None:
        """Build one file, and add it to `returned` if it has something that is missing here."""
        path = self._directory / f"{name}{BACK_SUFFIX}"
        before = []
        try:
            if needed.own is not None:
                copy_file(needed.own.path, path)
                with RebuiltFile(path) as building:
                    before = building.readable
            for source, remote in sorted(needed.sources, key=lambda one: one[1].size_bytes, reverse=True):
                self._on_progress()
                if source not in self._failed:
                    self._add(path, source, remote, needed.limit)
            if path.exists():
                with RebuiltFile(path) as building:
                    gained = count_of(building.readable) - count_of(before)
                    if needed.own is None:
                        building.blank_damage()
                    building.finish()
                if gained > 0:
                    file = building.as_returned(name)
                    returned.files.append(file)
                    returned.count += gained
                    self._end_unwritten_epochs(file, needed)
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
                write_new(path, self._pieces(source, file, 0, end.end_offset))
                return
            with RebuiltFile(path) as building:
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

    def _end_unwritten_epochs(self, file: ReturnedFile, needed: _NeededFile) -> None:
        """End the epochs after that of a file that goes on here: nothing was written in them.

        The broker writes the epochs at its end.
        """
        log = self._broker.topics[file.topic].log
        if not self.begins_epoch or log is None or file.end_seq <= log.next_seq:
            return
        last = min(source.logs[file.topic].epochs[-1].number for source, _ in needed.sources)
        log.epochs = tuple(epoch for epoch in log.epochs if epoch.number <= last)

    def _accept_unsure(self, returned: Returned) -> None:
        """Count what no standby has as finished, after a power cut: positions may be older than the log."""
        for topic in self._broker.topics.values():
            unsure = self._broker.losses.unsure(topic.name)
            if not unsure:
                continue
            back = []
            for file in returned.files:
                if file.topic == topic.name:
                    back += numbers_in(file.name, self._directory)
            left = minus(unsure, back)
            for channel in topic.channels.values():
                channel.accept_lost(left)


@contextmanager
def _talking() -> Iterator[None]:
    """Raise _SourceFailed for an error of the connection to a standby."""
    try:
        yield
    except FetchFailed:
        raise
    except (OSError, NsqdError) as error:
        raise _SourceFailed(str(error)) from error
