"""`nsqd.dat`: topics, channels and what is paused, in the JSON of Go's nsqd, which refuses to start on it.

It is written soon after something that it names has changed, and again after a failure.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import gevent
import gevent.lock
from gevent.event import Event

from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.ranges import EPOCHS_FILE
from nsqd_py.diskqueue.records import NewerFormat
from nsqd_py.errors import StartError
from nsqd_py.pqueues import Alarms
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.documents import BAD_CONTENT
from nsqd_py.runtime.logs import Log
from nsqd_py.runtime.pacing import ONE_ROUND_S, Pace
from nsqd_py.runtime.private_files import open_file, read_bytes
from nsqd_py.runtime.threads import in_thread
from nsqd_py.version import NSQ_VERSION

METADATA_FILE = "nsqd.dat"
FORMAT = 1
# After a write, the next one waits this many times as long as it took: many new topics share the writes. Without that,
# nsqd creates 1000 topics half as fast.
_PAUSE_FACTOR = 4
_LONGEST_PAUSE_S = 0.1
_FEW = 100  # topics, whose names and channels json writes in a millisecond
# Go's nsqd would start with the names in this file, without a message of our logs. It refuses a file in which "topics"
# is first a text; other readers, also older versions of nsqd-py, take the second of the two keys.
_NOT_FOR_GO = (
    b'{"topics":"The logs of nsqd-py are next to this file. Go\'s nsqd cannot read them; '
    b'nsqd-py --export-to-go=DIR writes files that it can read.",'
)


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

    At once, 10,000 topics would hold the event loop for 25 ms. A topic may change after it was encoded; it is then
    written again.
    """
    kept = [topic for topic in topics if not topic.is_ephemeral]
    if len(kept) <= _FEW:
        return encode_entries(list(map(_entry, kept)))
    import orjson  # takes 12 ms of a start

    pace = Pace(ONE_ROUND_S)
    entries = []
    for topic in kept:
        pace.rest_if_due()
        entries.append(orjson.Fragment(orjson.dumps(_entry(topic))))
    return _not_for_go(orjson.dumps(document_of(entries)))


def encode_entries(entries: list[Any]) -> bytes:
    """Return the file for the JSON objects of all topics."""
    return _not_for_go(json.dumps(document_of(entries), separators=(",", ":")).encode())


def document_of(entries: list[Any]) -> dict[str, Any]:
    """Return the content of the file as Go's nsqd writes it."""
    return {"topics": entries, "version": NSQ_VERSION}


def _not_for_go(document: bytes) -> bytes:
    return _NOT_FOR_GO + document.removeprefix(b"{")


def _entry(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "paused": topic.is_paused,
        "channels": [
            {"name": channel.name, "paused": channel.is_paused} for channel in topic.channels.values() if not channel.is_ephemeral
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
        _name(entry), entry.get("paused") is True, {_name(channel): channel.get("paused") is True for channel in channels}
    )


def _name(entry: dict[str, object]) -> str:
    """Return the name; a lone surrogate becomes `?`, which no valid name has."""
    name = entry["name"]
    if not isinstance(name, str):
        raise TypeError(f"{name!a:.50} is no name")
    return name.encode(errors="replace").decode()


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably. Raises OSError."""
    temporary = path.with_name(f"{path.name}.tmp")
    descriptor = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        written = os.write(descriptor, data)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes of {temporary} could be written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    sync_directory(path.parent)


_RETRY_NS = 5_000_000_000


class MetadataWriter:
    """Writes `nsqd.dat` whenever the topics or channels have changed."""

    def __init__(
        self,
        path: Path,
        topics: Mapping[str, Topic],
        log: Log,
        alarms: Alarms,
        clock: Callable[[], int],
        threadpool: Any,
        is_making: Callable[[str, str], bool],
        on_written: Callable[[], None] = lambda: None,
        epochs: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """`is_making(topic_name, channel_name)` is True while that channel is being created.

        `epochs` returns the content of `nsqd.epochs`, which is written before; None if there shall be no such file.
        """
        self._on_written = on_written
        self._epochs = epochs
        self._path = path
        self._is_making = is_making
        self._topics = topics
        self._log = log
        self._clock = clock
        self._threadpool = threadpool
        self._deleted: list[tuple[Topic, Channel]] = []
        self._lock = gevent.lock.Semaphore()
        self._is_wanted = False
        self._is_closing = False
        self._is_urgent = Event()
        self._greenlet: Any = None
        self._alarm = alarms.alarm(lambda _now_ns: self.want())

    def want(self) -> None:
        """Write the file soon."""
        self._is_wanted = True
        if self._greenlet is None and not self._is_closing:
            self._greenlet = gevent.spawn(self._write_wanted)

    def channel_deleted(self, topic: Topic, channel: Channel) -> None:
        """Remove the journal of a deleted channel as soon as the file no longer names the channel."""
        self._deleted.append((topic, channel))

    def _write_wanted(self) -> None:
        try:
            while self._is_wanted:
                self._is_wanted = False
                began_s = perf_counter()
                if not self._try_to_persist():
                    self._alarm.set(self._clock() + _RETRY_NS)
                self._is_urgent.wait(min(_PAUSE_FACTOR * (perf_counter() - began_s), _LONGEST_PAUSE_S))
        finally:
            self._greenlet = None
            self._is_urgent.clear()

    def _try_to_persist(self) -> bool:
        try:
            self.persist()
        except OSError as error:
            self._log.error("failed to persist metadata - %s", error)
            return False
        except Exception as error:  # noqa: BLE001 - after a bug, the next attempt must follow as after a full disk
            self._log.exception("failed to persist metadata - %r", error)
            return False
        return True

    def persist(self) -> None:
        """Replace the file durably. Raises OSError. Blocks this greenlet, not the loop."""
        with self._lock:
            self._log.of_clients.info("NSQ: persisting topic/channel metadata to %s", self._path)
            # Before the pauses of encoding: a channel that is deleted in one of them may still be named.
            deleted, self._deleted = self._deleted, []
            data = encode_metadata(self._topics.values())
            epochs = self._epochs()
            try:
                in_thread(self._threadpool, self._replace, data, epochs, [channel for _, channel in deleted])
            except Exception:
                self._deleted[:0] = deleted
                raise
            self._on_written()
            for topic, channel in deleted:
                self._remove_journal(topic, channel)

    def _replace(self, data: bytes, epochs: bytes | None, deleted: list[Channel]) -> None:
        """Sync the journals of deleted channels, then write the file. Runs in a thread.

        In this order, since a start creates a channel for each journal that does not say that it is deleted.
        """
        for channel in deleted:
            if channel.journal is not None:
                with suppress(FileNotFoundError):  # another program has removed it
                    channel.journal.sync()
        if epochs is not None:
            replace_file(self._path.with_name(EPOCHS_FILE), epochs)
        replace_file(self._path, data)

    def _remove_journal(self, topic: Topic, channel: Channel) -> None:
        if channel.journal is not None:
            channel.journal.close()
            current = self._topics.get(topic.name)
            is_there_again = current is not None and channel.name in current.channels
            if not is_there_again and not self._is_making(topic.name, channel.name):
                channel.journal.remove()

    def settle(self) -> None:
        """Wait until a pending write is done. May block this greenlet."""
        if self._greenlet is not None:
            self._is_urgent.set()
            self._greenlet.join()

    def close(self) -> None:
        """Write the file a last time. Failures are logged."""
        self._is_closing = True
        self.settle()
        self._try_to_persist()
        self._alarm.set(None)
