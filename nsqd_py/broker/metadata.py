"""`nsqd.dat`: topics, channels and what is paused, in the JSON of Go's nsqd, which refuses to start on it.

It is written soon after something that it names has changed, and again after a failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import gevent
from gevent.event import Event
from google_crc32c import extend

from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.broker.state_files import METADATA_FILE
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.diskqueue.records import NewerFormat
from nsqd_py.errors import StartError
from nsqd_py.queue.storage import PositionJournal
from nsqd_py.runtime.documents import BAD_CONTENT
from nsqd_py.runtime.pacing import ONE_ROUND_S, WorkSlices
from nsqd_py.runtime.private_files import read_bytes
from nsqd_py.runtime.threads import GreenletLock, in_thread
from nsqd_py.version import NSQ_VERSION

FORMAT = 1
_RETRY_NS = 5_000_000_000  # after a failed write
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
BEGIN_BYTES = len(_NOT_FOR_GO % 0)
CHECKSUM_BYTES = 8  # hexadecimal
AFTER_CHECKSUM = '",'


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
    return begin_of(content) + content


def begin_of(content: bytes) -> bytes:
    """Return how a file begins that goes on with `content`."""
    text: str = _NOT_FOR_GO % extend(0, content)
    return text.encode()


def _check_checksum(data: bytes) -> None:
    """Raise ValueError if the file has a checksum, and it is wrong."""
    begin = data[:BEGIN_BYTES]
    has_checksum = without_checksum(begin) == without_checksum(begin_of(b""))
    if has_checksum and begin != begin_of(data[BEGIN_BYTES:]):
        raise ValueError("its checksum is wrong")


def without_checksum(begin: bytes) -> bytes:
    return begin[: -len(AFTER_CHECKSUM) - CHECKSUM_BYTES]


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

    error        why the last write failed, and the one before it: what hinders one may be over; None if one of them did not
    _being_made  the names (topic, channel) of channels that are being created
    _epochs      returns the content of `nsqd.epochs`, which is written before; None if there shall be no such file
    """

    _services: BrokerServices
    _topics: Mapping[str, Topic]
    _being_made: Container[tuple[str, str]]
    _on_written: Callable[[], None]
    _epochs: Callable[[], bytes | None]
    error: OSError | None = None
    _deleted: list[tuple[str, str, PositionJournal]] = field(default_factory=list)  # topic, channel, journal
    _lock: Any = field(default_factory=GreenletLock)
    _is_requested: bool = False
    _has_failed: bool = False
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
            self._services.data_path.check()
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
            except Exception as error:
                self._deleted[:0] = deleted
                if isinstance(error, OSError):
                    if self._has_failed:
                        self.error = error.with_traceback(None)
                    else:
                        self.error = None
                    self._has_failed = True
                raise
            self.error = None
            self._has_failed = False
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
