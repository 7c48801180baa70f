"""`StoreHistory`: the logs of a running nsqd go on in the store where its disk ends.

The logs read with `nsqd_py.diskqueue.history`. This is below it: the list of stored files, and their bytes, in blocks of 1 MiB,
of which a bounded number is cached. A reader that goes on gets several blocks with one request. While a request to the store
hangs, no other one is begun, and no greenlet waits for it longer than `HANGS_S`.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic

from nsqd_py.broker.services import Store
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.history import BLOCK_BYTES, History, LogHistory
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Missing, Objects, StoreError, StoreRefused
from nsqd_py.runtime.threads import DiskThreads
from nsqd_py.server.options import NsqdOptions
from nsqd_py.store.files import Retention, StoredFiles
from nsqd_py.store.image import read_head
from nsqd_py.store.layout import HEAD_NAME, StoredFile

# With 32 blocks, and 4 in a request, four readers cost 57 MB instead of 10; now 1 GB takes 520 requests and not 310.
_MOST_BLOCKS = 8  # cached, in all
_BLOCKS_AHEAD = 2  # in one request, for a reader that goes on
# Threads that read stored files. While a store does not answer, they wait for it, and no other work waits for them.
_MOST_THREADS = 4
# A request that takes longer hangs. It may still be answered: obstore ends it after 30 s.
HANGS_S = 5.0


# ---- bytes


class BlockCache:
    """The bytes of stored files, by blocks.

    Threads and the event loop share it: the lock guards the blocks and the times of requests, and is free during requests.
    """

    def __init__(self, objects: Objects, clock_s: Callable[[], float] = monotonic) -> None:
        self._objects = objects
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._began_s: dict[object, float] = {}  # of each request that runs

    def check_answers(self) -> None:
        """Raise TimeoutError if a request to the store hangs."""
        with self._lock:
            oldest_s = min(self._began_s.values(), default=None)
        if oldest_s is not None and self._clock_s() - oldest_s > HANGS_S:
            reason = f"the store does not answer: it has taken more than {HANGS_S:.0f} s for a request so far"
            raise TimeoutError(errno.ETIMEDOUT, reason)

    @contextmanager
    def _request(self) -> Iterator[None]:
        """Note that a request runs. Raises TimeoutError if another one hangs."""
        self.check_answers()
        request = object()
        with self._lock:
            self._began_s[request] = self._clock_s()
        try:
            yield
        finally:
            with self._lock:
                del self._began_s[request]

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
            with self._request():
                data = self._objects.get_range(name, start, end)
        except Missing as error:
            raise self._missing(error) from error
        except StoreRefused as error:
            raise OSError(errno.EIO, f"the store refuses to read {name}: {error}") from error
        except StoreError as error:
            raise OSError(errno.EIO, f"the store does not answer: {error}") from error
        if len(data) == end - start:
            return data
        if not self._ends_before(name, end):
            raise OSError(errno.EIO, f"the store has {len(data)} of the bytes {start} to {end} of {name}")
        # What is missing is damage, as bytes that have flipped are: readers report it, and pass over it.
        return data + bytes(end - start - len(data))

    def _ends_before(self, name: str, end: int) -> bool:
        """True if the store says that the object was truncated, so that it is not the answer that was torn. Raises OSError."""
        prefix = name.rpartition("/")[0]
        try:
            with self._request():
                listed = next((each for each in self._objects.list(prefix) if each.name == name), None)
        except NsqdError as error:
            raise OSError(errno.EIO, f"the store does not answer: {error}") from error
        return listed is not None and listed.size_bytes < end

    def _missing(self, error: Missing) -> OSError:
        """Return the error for a missing object: is it lost, or is the store as a whole not there?"""
        try:
            with self._request():
                is_there = read_head(self._objects) is not None
        except NsqdError:
            is_there = False
        if is_there:
            return FileNotFoundError(errno.ENOENT, f"the store has lost a file: {error}")
        return OSError(errno.EIO, f"the store does not answer: {error}, and {HEAD_NAME} cannot be read")


# ---- the files


@dataclass(eq=False, repr=False)
class TopicHistory(History):
    """The stored files of one log. The event loop has them."""

    _topic_name: str
    _log: TopicLog
    _files: StoredFiles
    _cache: BlockCache

    def segments(self) -> Sequence[StoredFile]:
        return self._files.readable(self._topic_name, self._log)

    def read_at(self, name: str, size_bytes: int, offset: int, size: int) -> bytes:
        return self._cache.read(name, size_bytes, offset, size)


class StoreHistory(Store):
    """The stored files of all topics, for `LogMaker.use_store` before the topics are loaded.

    threadpool  threads that read them
    """

    def __init__(self, objects: Objects, files: StoredFiles, options: NsqdOptions) -> None:
        self.threadpool = DiskThreads(_MOST_THREADS)
        self._files = files
        self._options = options
        self._cache = BlockCache(objects)

    def start(self) -> None:
        """Read in threads from now on, since nsqd begins to serve."""
        self.threadpool.serve()

    def check_answers(self) -> None:
        self._cache.check_answers()

    def stop(self) -> None:
        """End the threads, each after its request."""
        self.threadpool.stop()

    def attach(self, topic_name: str, log: TopicLog) -> None:
        self._files.attach(topic_name, log)
        history = TopicHistory(topic_name, log, self._files, self._cache)
        log.history = LogHistory(history, log.damage)
        if Retention.of(self._options, topic_name):
            log.may_drop = partial(self._may_drop, topic_name)

    def _may_drop(self, topic_name: str, file: LogFile) -> bool:
        """True if the store has the file, or can never have all its messages: then it is not retained."""
        return not file.is_whole or self._files.has_all_of(topic_name, file)
