"""The stored log files of all topics, for the logs of a running nsqd: `StoreHistory`; and which of them may go.

The logs read with `nsqd_py.diskqueue.history`. This is below it: the list of files, as the store's rounds have it, and their
bytes, in blocks of 1 MiB, of which a bounded number is cached. A reader that goes on gets several blocks with one request.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.history import BLOCK_BYTES, History
from nsqd_py.protocol.message_ids import id_time_ns
from nsqd_py.runtime.threads import DiskThreads
from nsqd_py.server.options import NsqdOptions
from nsqd_py.store.layout import StoredFile
from nsqd_py.store.objects import Missing, Objects, StoreError, StoreRefused

_MOST_BLOCKS = 32  # cached, in all
_BLOCKS_AHEAD = 4  # in one request, for a reader that goes on
# Threads that read stored files. While a store does not answer, they wait for it, and no other work waits for them.
_MOST_THREADS = 4


# ---- bytes


class BlockCache:
    """The bytes of stored files, by blocks. Threads share it: the lock guards the blocks, and is free during requests."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def read(self, name: str, size_bytes: int, offset: int, size: int) -> bytes:
        """Return these bytes of an object, which has `size_bytes`. Blocks. Raises OSError."""
        first = offset // BLOCK_BYTES
        last = (offset + size - 1) // BLOCK_BYTES
        pieces = [self._block(name, size_bytes, block, last) for block in range(first, last + 1)]
        start = offset - first * BLOCK_BYTES
        if len(pieces) == 1:
            return pieces[0][start : start + size]
        return b"".join(pieces)[start : start + size]

    def _block(self, name: str, size_bytes: int, block: int, last: int) -> bytes:
        with self._lock:
            data = self._blocks.get((name, block))
            if data is not None:
                self._blocks.move_to_end((name, block))
                return data
            is_next = (name, block - 1) in self._blocks
        count = min(last - block + 1, _BLOCKS_AHEAD)
        if is_next:
            count = _BLOCKS_AHEAD
        start = block * BLOCK_BYTES
        data = self._get_range(name, start, min(start + count * BLOCK_BYTES, size_bytes))
        with self._lock:
            for at in range(0, len(data), BLOCK_BYTES):
                self._blocks[name, block + at // BLOCK_BYTES] = data[at : at + BLOCK_BYTES]
            while len(self._blocks) > _MOST_BLOCKS:
                self._blocks.popitem(last=False)
        return data[:BLOCK_BYTES]

    def _get_range(self, name: str, start: int, end: int) -> bytes:
        try:
            data = self._objects.get_range(name, start, end)
        except Missing as error:
            raise OSError(errno.EIO, f"the store has lost a file: {error}") from error
        except StoreRefused as error:
            raise OSError(errno.EIO, f"the store refuses to read {name}: {error}") from error
        except StoreError as error:
            raise OSError(errno.EIO, f"the store does not answer: {error}") from error
        if len(data) != end - start:
            raise OSError(errno.EIO, f"the store has {len(data)} of the bytes {start} to {end} of {name}")
        return data


# ---- the files


class TopicFiles(History):
    """The stored files of one topic. The event loop has them.

    files  all of them by their names, also the beginnings of files that were stored again since
    """

    def __init__(self, cache: BlockCache, files: Iterable[StoredFile]) -> None:
        self.files = {file.name: file for file in files}
        self._cache = cache
        self._segments: Sequence[StoredFile] | None = None

    def segments(self) -> Sequence[StoredFile]:
        if self._segments is None:
            self._segments = readable(self.files.values())
        return self._segments

    def read_at(self, name: str, size_bytes: int, offset: int, size: int) -> bytes:
        return self._cache.read(name, size_bytes, offset, size)

    def change(self, added: Iterable[StoredFile], removed: Iterable[str]) -> None:
        """Add and remove files."""
        for name in removed:
            self.files.pop(name, None)
        self.files |= {file.name: file for file in added}
        self._segments = None


def readable(files: Iterable[StoredFile]) -> list[StoredFile]:
    """Return the files to read, in the order of their messages: none whose messages another one has.

    Of files that begin with one message, that is the longest whole one.
    """
    found: list[StoredFile] = []
    for file in sorted(files, key=lambda file: (file.first_seq, file.is_whole, file.end_seq)):
        if found and found[-1].first_seq == file.first_seq:
            found.pop()
        if file.end_seq > max(file.first_seq, found[-1].end_seq if found else 0):
            found.append(file)
    return found


class StoreHistory:
    """The stored files of all topics: the `Store` for `broker.logs.use_store`, before the topics are loaded.

    threadpool  threads that read them
    """

    def __init__(self, objects: Objects, files: Mapping[str, Iterable[StoredFile]]) -> None:
        """`files` are those of a `StoreImage`."""
        self.threadpool = DiskThreads(_MOST_THREADS)
        self._cache = BlockCache(objects)
        self._topics = {name: TopicFiles(self._cache, each) for name, each in files.items()}

    def start(self) -> None:
        """Read in threads from now on, since nsqd begins to serve."""
        self.threadpool.serve()

    def stop(self) -> None:
        """End the threads, each after its request."""
        self.threadpool.stop()

    def history_of(self, topic_name: str) -> TopicFiles:
        """Return the files of a topic, also of a new one, which has none."""
        files = self._topics.get(topic_name)
        if files is None:
            files = self._topics[topic_name] = TopicFiles(self._cache, ())
        return files

    def change(self, added: Iterable[StoredFile] = (), removed: Iterable[str] = ()) -> None:
        """Handle a change of the list of files: those that were added are in the store, and those removed still are."""
        added = list(added)
        removed = set(removed)
        for name in {file.topic for file in added}:
            self.history_of(name)
        for name, files in self._topics.items():
            gone = removed.intersection(files.files)
            new = [file for file in added if file.topic == name]
            if gone or new:
                files.change(new, gone)

    def topic_deleted(self, topic_name: str) -> list[StoredFile]:
        """Forget the files of a topic, and return them: a new topic of this name has none of them."""
        files = self._topics.pop(topic_name, None)
        return list(files.files.values()) if files is not None else []


# ---- retention


@dataclass(frozen=True, slots=True)
class StoreRetention:
    """How long the store keeps finished messages of a topic: the longer one of its own settings and those of the disk.

    keeps_ns     files with messages that are younger
    keeps_bytes  the newest files, up to the one with which they have so many
    """

    keeps_ns: int
    keeps_bytes: int

    @classmethod
    def of(cls, options: NsqdOptions, topic_name: str) -> StoreRetention:
        return cls(
            max(options.store_retention_time_ns.of(topic_name), options.retention_time_ns.of(topic_name)),
            max(options.store_retention_bytes.of(topic_name), options.retention_bytes.of(topic_name)),
        )

    @property
    def keeps_any(self) -> bool:
        """False if a file may go as soon as all its messages are finished; it need not be stored before."""
        return bool(self.keeps_ns or self.keeps_bytes)

    def unretained(self, files: Sequence[StoredFile], now_ns: int, steady_ns: int) -> list[StoredFile]:
        """Return those of these files, in the order of their messages, that are too old to be kept.

        `now_ns` is the wall clock, `steady_ns` the steady clock of ids: the one that keeps more decides, so that setting a
        clock drops nothing too early.
        """
        newer_bytes = 0
        for index in range(len(files) - 1, -1, -1):
            file = files[index]
            age_ns = min(now_ns - file.last_ns, steady_ns - id_time_ns(file.last_id))
            is_young = self.keeps_ns > 0 and age_ns < self.keeps_ns
            if newer_bytes >= self.keeps_bytes and not is_young:
                return list(files[: index + 1])
            newer_bytes += file.size_bytes
        return []


def unneeded_files(
    files: Sequence[StoredFile],
    retention: StoreRetention,
    is_needed: Callable[[int, int], bool],
    on_disk: Iterable[int],
    now_ns: int,
    steady_ns: int,
) -> list[StoredFile]:
    """Return the stored files of a topic that may go, given all of them in the order of their messages.

    None of them has a message for which `is_needed(low, high)`. A file stays while a local one begins with the same message, as
    those in `on_disk` do: it would be stored again.
    """
    local = set(on_disk)
    return [
        file
        for file in retention.unretained(files, now_ns, steady_ns)
        if file.is_sealed and file.first_seq not in local and not is_needed(file.first_seq, file.end_seq)
    ]


def unneeded_of(
    topic: Topic, files: TopicFiles, options: NsqdOptions, now_ns: int, steady_ns: int
) -> list[StoredFile]:
    """Return the stored files of a topic that may go now; see `unneeded_files`."""
    assert topic.log is not None
    retention = StoreRetention.of(options, topic.name)
    on_disk = (file.first_seq for file in topic.log.files)
    return unneeded_files(files.segments(), retention, topic.is_needed, on_disk, now_ns, steady_ns)
