"""The small files of a data path: `nsqd.dat`, `nsqd.clock` and `nsqd.stop`.

`nsqd.dat`: topics, channels and what is paused, in the JSON of Go's nsqd, which refuses to start on it.

It is written soon after something that it names has changed, and again after a failure.

`nsqd.clock` and `nsqd.stop`: the steady clock, and the record of a clean stop.

Due times and message ids are on the steady clock, and outlive the process. `nsqd.clock` says what it showed, so that it
continues after a restart even if the wall clock was set. While the machine stays up, its boot clock measures the time
since the file was written. After a reboot the wall clock must do that.

`nsqd.stop` says where each log ended. After a kill or a power cut the end of a log may be torn, and that is no damage.
After a clean stop nothing may be missing: whatever is, was removed or damaged since. The file is written as the last
step of a clean stop, and the next start removes it before anything is written to a log.

The first line of each of these two files is the crc32c of the rest, which is JSON. A damaged file is ignored; one with a right
checksum that nsqd cannot have written ends the start.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import gevent
from gevent.event import Event
from google_crc32c import extend

from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.clock import SteadyClock
from nsqd_py.diskqueue.files.log_file import replace_file, sync_directory
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE, SavedEpochs, decode_epochs_of_logs
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import NewerFormat
from nsqd_py.diskqueue.recovery import LogEnd
from nsqd_py.errors import StartError
from nsqd_py.protocol.message_ids import END_OF_IDS_NS, FIRST_ID_NS
from nsqd_py.queue.storage import PositionJournal
from nsqd_py.runtime.documents import BAD_CONTENT, checked_number, decode_fields, describe
from nsqd_py.runtime.one_bit import corrected, differs_by_a_bit
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices
from nsqd_py.runtime.private_files import read_bytes
from nsqd_py.runtime.threads import GreenletLock, in_thread
from nsqd_py.version import NSQ_VERSION

METADATA_FILE = "nsqd.dat"
STOP_FILE = "nsqd.stop"
CLOCK_FILE = "nsqd.clock"
STANDBY_FILE = "nsqd.standby"  # see `nsqd_py.standby.copies.copy`
MEMBER_FILE = "nsqd.member"  # the random id of a data path, which is not copied
STANDBYS_FILE = "nsqd.standbys"  # see `nsqd_py.standby.repairs.give_back`
STORE_FILE = "nsqd.store"  # see `nsqd_py.store.ownership`
BACKUP_FILE = "nsqd.backup"  # in a data path that is not restored completely, see `nsqd_py.store.restoring`

FORMAT = 1  # of `nsqd.dat`
_RETRY_NS = 5_000_000_000  # after a failed write of `nsqd.dat`
# After a write, the next one waits this many times as long as it took: many new topics share the writes. Without that,
# nsqd creates 1000 topics half as fast.
_PAUSE_FACTOR = 4
_LONGEST_PAUSE_S = 0.1
# Go's nsqd would start with the names in this file, without a message of our logs. It refuses a file in which "topics"
# is first a text; other readers, also older versions of nsqd-py, take the second of the two keys. Earlier versions wrote the
# text without a checksum, which is that of what follows.
_NOT_FOR_GO = (
    '{"topics":"The logs of nsqd-py are next to this file. Go\'s nsqd cannot read them; '
    'nsqd-py --export-to-go=DIR writes files that it can read. Checksum: %08x",'
)
_NOT_FOR_GO_BYTES = len(_NOT_FOR_GO % 0)

_CHECKSUM_BYTES = 8  # hexadecimal
_AFTER_CHECKSUM = '",'
_FIRST_LINE_BYTES = _CHECKSUM_BYTES + 1
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

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The wall clock is compared with the steady clock each second.
_CHECK_EVERY_NS = 1_000_000_000
_STEP_NS = 1_000_000_000  # smaller differences are no step: the system corrects them gradually

T = TypeVar("T")


# ---- topics and channels: nsqd.dat


class BadMetadata(StartError):
    """The file is not valid metadata."""


@dataclass(slots=True)
class TopicEntry:
    """A topic in `nsqd.dat`; `channels` maps a name to whether the channel is paused."""

    name: str
    is_paused: bool = False
    channels: dict[str, bool] = field(default_factory=dict)


def encode_metadata(topics: Iterable[Topic]) -> bytes:
    """Return the JSON of all topics and channels that are not ephemeral. Blocks this greenlet in its pauses.

    A topic may change after it was encoded; it is then rewritten.
    """
    slices = WorkSlices(ONE_ROUND_S)
    entries = []
    lasting = [topic for topic in topics if not topic.is_ephemeral]
    for topic in lasting:
        slices.sleep_if_due()
        entries.append(json.dumps(_entry(topic), separators=(",", ":")))
    names = ",".join(entries).encode()
    content = b'"topics":[%b],"version":"%b"}' % (names, NSQ_VERSION.encode())
    return _not_for_go(content) + content


def _not_for_go(content: bytes) -> bytes:
    """Return how a file begins that goes on with `content`."""
    text: str = _NOT_FOR_GO % extend(0, content)
    return text.encode()


def _check_checksum(data: bytes) -> None:
    """Raise ValueError if the file has a checksum, and it is wrong."""
    begin = data[:_NOT_FOR_GO_BYTES]
    has_checksum = _without_checksum(begin) == _without_checksum(_not_for_go(b""))
    if has_checksum and begin != _not_for_go(data[_NOT_FOR_GO_BYTES:]):
        raise ValueError("its checksum is wrong")


def _without_checksum(begin: bytes) -> bytes:
    return begin[: -len(_AFTER_CHECKSUM) - _CHECKSUM_BYTES]


def _entry(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "paused": topic.is_paused,
        "channels": [
            {"name": channel.name, "paused": channel.is_paused}
            for channel in topic.channels.values()
            if not channel.is_ephemeral
        ],
    }


def read_metadata(path: Path) -> list[TopicEntry]:
    """Return the topics of the file; an empty list if there is no file.

    Raises BadMetadata if it cannot be parsed, StartError if it cannot be read or a later version wrote it.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StartError(f"failed to read metadata from {path} - {error}") from error
    try:
        document = json.loads(data)
        _check_checksum(data)
        found = document.get("format", FORMAT)
        if isinstance(found, int) and found > FORMAT:
            raise NewerFormat(f"format {found}; this version reads format {FORMAT}").refusal(str(path))
        return [_topic_entry(entry) for entry in document["topics"] or ()]
    except BAD_CONTENT as error:
        raise BadMetadata(f"failed to parse metadata in {path} - {error}") from error


def _topic_entry(entry: dict[str, object]) -> TopicEntry:
    channels = entry.get("channels") or []
    if not isinstance(channels, list):
        raise TypeError("channels is no list")
    return TopicEntry(
        _name(entry),
        entry.get("paused") is True,
        {_name(channel): channel.get("paused") is True for channel in channels},
    )


def _name(entry: dict[str, object]) -> str:
    """Return the name; a lone surrogate becomes `?`, which no valid name has."""
    name = entry["name"]
    if not isinstance(name, str):
        raise TypeError(f"{name!a:.50} is no name")
    return name.encode(errors="replace").decode()


@dataclass(eq=False, repr=False)
class MetadataWriter:
    """Writes `nsqd.dat` whenever the topics or channels have changed.

    _being_made  the names (topic, channel) of channels that are being created
    _epochs      returns the content of `nsqd.epochs`, which is written before; None if there shall be no such file
    """

    _services: BrokerServices
    _topics: Mapping[str, Topic]
    _being_made: Container[tuple[str, str]]
    _on_written: Callable[[], None]
    _epochs: Callable[[], bytes | None]
    _deleted: list[tuple[str, str, PositionJournal]] = field(default_factory=list)  # topic, channel, journal
    _lock: Any = field(default_factory=GreenletLock)
    _is_requested: bool = False
    _is_closing: bool = False
    _is_urgent: Event = field(default_factory=Event)
    _greenlet: Any = None

    def __post_init__(self) -> None:
        self._path = self._services.directory / METADATA_FILE
        self._log = self._services.log
        self._alarm = self._services.alarms.alarm(lambda _now_ns: self.want())

    def want(self) -> None:
        """Write the file soon."""
        self._is_requested = True
        if self._greenlet is None and not self._is_closing:
            self._greenlet = gevent.spawn(self._write_requested)

    def channel_deleted(self, topic_name: str, name: str, journal: PositionJournal) -> None:
        """Remove the journal of a deleted channel as soon as the file no longer names the channel."""
        self._deleted.append((topic_name, name, journal))

    def _write_requested(self) -> None:
        try:
            while self._is_requested:
                self._is_requested = False
                began_s = perf_counter()
                self._try_to_persist()
                self._is_urgent.wait(min(_PAUSE_FACTOR * (perf_counter() - began_s), _LONGEST_PAUSE_S))
        finally:
            self._greenlet = None
            self._is_urgent.clear()

    def _try_to_persist(self) -> None:
        try:
            self.persist()
        except OSError as error:
            self._log.error("failed to persist metadata - %s", error)
        except Exception as error:  # noqa: BLE001 - after a bug, the next attempt must follow as after a full disk
            self._log.exception("failed to persist metadata - %r", error)

    def persist(self) -> None:
        """Replace the file durably. Raises OSError; a failure is retried. Blocks this greenlet, not the loop."""
        with self._lock:
            self._alarm.set(self._services.clock() + _RETRY_NS)  # until it is written
            self._log.of_clients.info("NSQ: persisting topic/channel metadata to %s", self._path)
            # Before the pauses of encoding: a channel that is deleted in one of them may still be named.
            deleted, self._deleted = self._deleted, []
            data = encode_metadata(self._topics.values())
            epochs = self._epochs()
            try:
                in_thread(
                    self._services.threadpool,
                    self._replace,
                    data,
                    epochs,
                    [journal for _, _, journal in deleted],
                )
            except Exception:
                self._deleted[:0] = deleted
                raise
            self._alarm.set(None)
            self._on_written()
            for topic_name, name, journal in deleted:
                self._remove_journal(topic_name, name, journal)

    def _replace(self, data: bytes, epochs: bytes | None, deleted: list[PositionJournal]) -> None:
        """Sync the journals of deleted channels, then write the file. Runs in a thread.

        In this order, since a start creates a channel for each journal that does not say that it is deleted.
        """
        for journal in deleted:
            with suppress(FileNotFoundError):  # another program has removed it
                journal.sync()
        if epochs is not None:
            replace_file(self._path.with_name(EPOCHS_FILE), epochs)
        replace_file(self._path, data)

    def _remove_journal(self, topic_name: str, name: str, journal: PositionJournal) -> None:
        journal.close()
        current = self._topics.get(topic_name)
        is_recreated = current is not None and name in current.channels
        # If it was recreated and deleted again, the file may still name it.
        is_deleted_again = any(one[:2] == (topic_name, name) for one in self._deleted)
        if not (is_recreated or is_deleted_again or (topic_name, name) in self._being_made):
            journal.remove()

    def settle(self, timeout_s: float | None = None) -> None:
        """Wait until a pending write is done. May block this greenlet."""
        if self._greenlet is not None:
            self._is_urgent.set()
            self._greenlet.join(timeout_s)

    def when_settled(self, call: Callable[[], None]) -> None:
        """Call `call` when a pending write is done; immediately if there is none."""
        if self._greenlet is None:
            call()
        else:
            self._is_urgent.set()
            self._greenlet.link(lambda _: call())

    def close(self) -> None:
        """Write the file a last time. Failures are logged."""
        self._is_closing = True
        self.settle()
        self._try_to_persist()
        self._alarm.set(None)


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
    return decode(json.loads(content)) if content is not None else None


def _checked_content(data: bytes) -> bytes | None:
    """Return what follows the checksum; None if that is wrong."""
    checksum, _, content = data.partition(b"\n")
    return content if checksum == b"%08x" % extend(0, content) else None


def mend_files(directory: Path) -> list[str]:
    """Correct the files of which one bit has flipped; return a sentence about each damaged one. Raises OSError."""
    sentences = []
    for name in [*damaged_files(directory), METADATA_FILE]:
        path = directory / name
        try:
            data = read_bytes(path)
        except FileNotFoundError:
            continue
        content = _metadata_without_flip(data) if name == METADATA_FILE else _checked_without_flip(data)
        if content is not None:
            replace_file(path, content)
            sentences.append(f"{name} was damaged: one bit had flipped, which its checksum has corrected")
        elif name != METADATA_FILE:
            sentences.append(f"{name} is damaged: its checksum is wrong; nsqd starts without it")
    return sentences


def _checked_without_flip(data: bytes) -> bytes | None:
    """Return the content of a damaged file with a checksum in its first line; None if more than a bit is wrong."""
    first, content = data[:_FIRST_LINE_BYTES], data[_FIRST_LINE_BYTES:]
    right = b"%08x\n" % extend(0, content)
    return _without_flip(first, content, right, first)


def _metadata_without_flip(data: bytes) -> bytes | None:
    """Return the content of a damaged `nsqd.dat`; None if it is not damaged, or if more than a bit is wrong."""
    begin, content = data[:_NOT_FOR_GO_BYTES], data[_NOT_FOR_GO_BYTES:]
    right = _not_for_go(content)
    if begin == right:
        return None
    checksum = begin.removeprefix(_without_checksum(right)).removesuffix(_AFTER_CHECKSUM.encode())
    return _without_flip(begin, content, right, checksum)


def _without_flip(begin: bytes, content: bytes, right: bytes, checksum: bytes) -> bytes | None:
    """Return `begin` and `content` with one bit corrected; None if more is wrong. `right` is how this content begins."""
    if differs_by_a_bit(begin, right):
        return right + content
    try:
        found = corrected(content, int(checksum, 16))
    except ValueError:
        return None
    return begin + found if found is not None else None


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


# ---- a clean stop: nsqd.stop


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
    ends = {
        topic: LogEnd(checked_number(next_seq), [*map(checked_number, file_seqs)], checked_number(end_offset))
        for topic, (next_seq, file_seqs, end_offset) in record["logs"].items()
    }
    return CleanStop(
        ends, {str(topic) for topic in record.get("open_ends", ())}
    )  # earlier versions write none


def forget_clean_stop(directory: Path) -> None:
    """Remove the record durably, before the logs change. Raises OSError."""
    path = directory / STOP_FILE
    if path.exists():
        path.unlink()
        sync_directory(directory)


def read_epochs(directory: Path) -> SavedEpochs | None:
    """Return the content of `nsqd.epochs`; None if there is no valid file. Raises OSError."""
    return read_checked(directory / EPOCHS_FILE, decode_epochs_of_logs)


# ---- the steady clock: nsqd.clock


@dataclass(frozen=True, slots=True)
class ClockReading:
    """All clocks at one moment, in ns.

    boot_id    identifies the current boot of the machine; empty if unknown
    boot_ns    time since the boot, including sleep
    wall_ns    time since the Unix epoch on the wall clock
    steady_ns  time since the Unix epoch on nsqd's steady clock
    """

    boot_id: str
    boot_ns: int
    wall_ns: int
    steady_ns: int

    def steady_at(self, now: ClockReading) -> int:
        """Return what the steady clock must show at `now`; the `steady_ns` of `now` is ignored.

        If it is unknown how much of a step of the wall clock is real time, the least possible time is assumed, so that
        setting a clock makes no message too old.
        """
        if self.is_same_boot(now) and now.boot_ns >= self.boot_ns:
            return self.steady_ns + now.boot_ns - self.boot_ns
        passed_ns = max(0, now.wall_ns - self.wall_ns)
        return min(self.steady_ns + passed_ns, max(self.steady_ns, now.wall_ns))

    def is_same_boot(self, now: ClockReading) -> bool:
        """True if both readings are of the same boot of the machine."""
        return bool(self.boot_id) and self.boot_id == now.boot_id


def read_clocks(steady_ns: int, wall_clock: Callable[[], int] = time.time_ns) -> ClockReading:
    """Return the current time of all clocks."""
    try:
        boot_id = _BOOT_ID.read_text().strip()
        boot_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):  # not Linux
        boot_id = ""
        boot_ns = 0
    return ClockReading(boot_id, boot_ns, wall_clock(), steady_ns)


def read_clock_file(directory: Path) -> ClockReading | None:
    """Return what the last nsqd wrote; None if there is no valid file. Raises OSError."""
    reading = read_checked(directory / CLOCK_FILE, _decode_reading)
    # Before the first id, the machine's clock was not set yet.
    if reading is not None and reading.steady_ns > FIRST_ID_NS:
        return reading
    return None


def _decode_reading(fields: dict[str, Any]) -> ClockReading:
    reading = decode_fields(ClockReading, fields)
    if reading.steady_ns >= END_OF_IDS_NS:
        raise ValueError(f"steady_ns is {reading.steady_ns}, after the last message id")
    return reading


class ClockKeeper:
    """Sets the steady clock at the start; writes `nsqd.clock` then, when the wall clock is set, and at the end."""

    def __init__(self, services: BrokerServices, clock: SteadyClock) -> None:
        self._services = services
        self._clock = clock
        self._written: ClockReading | None = None
        self._writing: Any = None  # the greenlet that waits for a thread
        self._alarm = services.alarms.alarm(self._check)

    def restore(self) -> bool:
        """Continue the steady clock of the last nsqd on this data path. Raises OSError.

        Return True if the machine has not been rebooted since: then nothing that nsqd wrote was lost.
        """
        before = read_clock_file(self._services.directory)
        now = self._read()
        if before is None:
            return False
        self._clock.go_on_at(before.steady_at(now))
        return before.is_same_boot(now)

    def start(self) -> None:
        """Write the file, and again after each step of the wall clock."""
        self._write(self._read())
        self._alarm.set(self._clock() + _CHECK_EVERY_NS)

    def close(self) -> None:
        """Write the file a last time. Failures are logged. Blocks this greenlet while a thread writes it."""
        self._alarm.set(None)
        if self._writing is not None:
            self._writing.join()  # it writes an earlier time, to the same file
        self._write(self._read())

    def _read(self) -> ClockReading:
        return read_clocks(self._clock(), self._services.wall_clock)

    def _check(self, now_ns: int) -> None:
        self._alarm.set(now_ns + _CHECK_EVERY_NS)
        before = self._written
        step_ns = 0
        if before is not None:
            step_ns = self._services.wall_clock() - now_ns - (before.wall_ns - before.steady_ns)
        if abs(step_ns) >= _STEP_NS and (self._writing is None or self._writing.ready()):
            self._services.log.warning("NSQ: the clock was set by %.1f s", step_ns / 1e9)
            self._written = self._read()
            self._writing = gevent.spawn(in_thread, self._services.threadpool, self._replace, self._written)

    def _write(self, reading: ClockReading) -> None:
        self._written = reading
        self._replace(reading)

    def _replace(self, reading: ClockReading) -> None:
        """Write the file; may run in a thread."""
        try:
            write_checked(self._services.directory / CLOCK_FILE, asdict(reading))
        except OSError as error:  # the next start uses the wall clock
            self._services.log.error("NSQ: failed to write down the time - %s", error)
