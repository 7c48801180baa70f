"""Messages as the page gets them: of /channel/peek, and of a topic's log, searched in both directions."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from nsqadmin_py.messages.filters import MessageFilter
from nsqd_py.cluster.admin_client import UpstreamError
from nsqd_py.cluster.values import Statistics, number_in
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, NO_LOG, FileHeader, batches_in
from nsqd_py.protocol.batch import Batch
from nsqd_py.protocol.frames import hex_ids

# The part of a body that the page shows: characters, or bytes of a body that is no text.
SHOWN_CHARACTERS = 64 * 1024
_SHOWN_BYTES = SHOWN_CHARACTERS // 4 * 3
# Of bodies in one answer to the page. The first message is returned even if it is larger.
_MOST_SHOWN_BYTES = 4 * 1024 * 1024
# The messages in the first window of a search backwards.
_FIRST_WINDOW = 64
# A window that the deadline cuts is searched again; this one takes 0.2 s.
_LARGEST_WINDOW = 65_536


# ---- messages of /channel/peek


def body_of(message: Mapping[str, Any]) -> bytes:
    """Return the body of a message of /channel/peek; empty if it has none."""
    body = message.get("body")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    try:
        return b64decode(str(message.get("body_base64", "")), validate=True)
    except ValueError:
        return b""


def shown(message: Mapping[str, Any], body: bytes) -> Statistics:
    """Return a message with the size of its body, and at most the part of the body that the page shows."""
    row = {key: value for key, value in message.items() if key not in ("body", "body_base64")}
    if "attempts" in row:
        row["attempts"] = number_in(message, "attempts")
    row["size"] = len(body)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        row["body_base64"] = b64encode(body[:_SHOWN_BYTES]).decode()
        is_cut = len(body) > _SHOWN_BYTES
    else:
        row["body"] = text[:SHOWN_CHARACTERS]
        is_cut = len(text) > SHOWN_CHARACTERS
    if is_cut:
        row["is_cut"] = True
    return row


# ---- searches


class LogSource(NamedTuple):
    """The log of a topic on one nsqd.

    read       returns the answer of /topic/read to a query with `seq` or `time`
    is_late    True once a search must end
    in_thread  runs a function in a thread, and waits for it
    """

    read: Callable[[dict[str, str]], bytes]
    is_late: Callable[[], bool]
    in_thread: Callable[[Callable[[], None]], None]


class BadLog(UpstreamError):
    """The answer of an nsqd is no log."""


@contextmanager
def _checked() -> Iterator[None]:
    """Raise BadLog for a log that cannot be decoded."""
    try:
        yield
    except NO_LOG as error:
        raise BadLog(f"the answer to /topic/read is not a log: {error}") from error


@dataclass
class LogPage:
    """A part of the log.

    messages         the requested messages, see `rows.shown`, with `seq`, and `due` if they were deferred
    next_seq         where the search goes on
    prev_seq         where a search backwards goes on: it has examined all messages from this number on
    searched_count   messages that were examined
    first_timestamp  publish time of the first message that was examined, or of the first row of a search
                     backwards that found enough; None if there is none
    last_timestamp   publish time of the last message that was examined; None if none was
    is_end           True if the log has nothing more
    is_start         True if a search backwards has come to the first message of the log
    """

    messages: list[Statistics] = field(default_factory=list)
    next_seq: int = 0
    prev_seq: int | None = None
    searched_count: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    is_end: bool = False
    is_start: bool = False


class LogSearch:
    """A search from a position of the log on. It ends with `limit` messages, a late source, or the log.

    is_over  True if it has examined all messages before the number `end`
    """

    def __init__(
        self, source: LogSource, message_filter: MessageFilter, limit: int, end: int = sys.maxsize
    ) -> None:
        self.page = LogPage()
        self.is_over = False
        self._source = source
        self._end = end
        self._filter = message_filter
        self._limit = limit
        self._left_bytes = _MOST_SHOWN_BYTES
        self._is_full = False

    def run(self, start: dict[str, str]) -> LogPage:
        """Search from `start`, the query of the first read. Raises UpstreamError."""
        page = self.page
        source = self._source
        page.next_seq = int(start.get("seq", "0"))
        query = start
        while not (self._is_full or self.is_over):
            source.in_thread(partial(self._search, source.read(query)))
            query = {"seq": str(page.next_seq)}
            if source.is_late():
                break
        return page

    # ---- in a thread

    def _search(self, data: bytes) -> None:
        page = self.page
        with _checked():
            header = FileHeader.decode(data)
            if len(data) == FILE_HEADER_BYTES:
                page.is_end = True
                self.is_over = True
                page.next_seq = max(page.next_seq, header.first_seq)
            for batch in batches_in(data, header.salt):
                if not self._take(batch):
                    return

    def _take(self, batch: Batch) -> bool:
        """Examine the messages of a batch. Return False if the search is over."""
        page = self.page
        first = max(0, page.next_seq - batch.first_seq)
        after = min(batch.count, self._end - batch.first_seq)
        self.is_over = batch.end_seq >= self._end
        if first >= after:
            return not self.is_over
        page.first_timestamp = page.first_timestamp or batch.timestamp_ns
        if not self._filter.may_match(batch.body):
            self._pass(batch, after, after - first)
            return not (self.is_over or self._source.is_late())
        for index in range(first, after):
            body = batch.message(index)
            if self._filter.matches(body) and not self._keep(batch, index, body):
                self.is_over = False
                return False
            self._pass(batch, index + 1, 1)
            if self._is_full:
                self.is_over = self.is_over and index + 1 == after
                return False
        return not (self.is_over or self._source.is_late())

    def _pass(self, batch: Batch, index: int, count: int) -> None:
        """Note that `count` messages before this one of the batch were examined."""
        page = self.page
        page.searched_count += count
        page.next_seq = batch.first_seq + index
        page.last_timestamp = batch.timestamp_ns

    def _keep(self, batch: Batch, index: int, body: bytes) -> bool:
        """Add a message; return False if there is no room for it, so that the next page begins with it."""
        message = {
            "id": hex_ids(batch.base_id + index, 1)[0].decode(),
            "seq": batch.first_seq + index,
            "timestamp": batch.timestamp_ns,
        }
        if batch.due_ns:
            message["due"] = batch.due_ns
        row = shown(message, body)
        self._left_bytes -= _shown_bytes(row)
        if self._left_bytes < 0 and self.page.messages:
            self._is_full = True
            return False
        self.page.messages.append(row)
        self._is_full = len(self.page.messages) >= self._limit
        return True


def search_back(source: LogSource, message_filter: MessageFilter, limit: int, end: int) -> LogPage:
    """Return the last `limit` requested messages before the number `end`, or fewer if it is late.

    Raises UpstreamError.
    """
    found = LogPage(next_seq=end, prev_seq=end)
    window = _FIRST_WINDOW
    left_bytes = _MOST_SHOWN_BYTES
    while len(found.messages) < limit and left_bytes > 0 and end > 0 and not source.is_late():
        low = max(0, end - window)
        search = LogSearch(source, message_filter, sys.maxsize, end)
        part = search.run({"seq": str(low)})
        if not search.is_over:  # there is too little time or room for the whole window
            if window == 1:
                break
            window = max(1, window // 8)
            continue
        found.searched_count += part.searched_count
        found.first_timestamp = part.first_timestamp or found.first_timestamp
        found.last_timestamp = found.last_timestamp or part.last_timestamp
        rows = part.messages[-(limit - len(found.messages)) :]
        left_bytes -= sum(map(_shown_bytes, rows))
        found.messages = rows + found.messages
        end = low
        window = min(2 * window, _LARGEST_WINDOW)
        if not part.searched_count:
            end = 0
    found.prev_seq = end
    if len(found.messages) == limit:
        found.prev_seq = found.messages[0]["seq"]
        found.first_timestamp = found.messages[0]["timestamp"]
    found.is_start = found.prev_seq == 0
    return found


def _shown_bytes(row: Statistics) -> int:
    return len(row.get("body") or row.get("body_base64", ""))


def body_at(data: bytes, seq: int) -> bytes | None:
    """Return the body of one message of an answer to /topic/read; None if it is not there. Raises BadLog."""
    with _checked():
        for batch in batches_in(data, FileHeader.decode(data).salt):
            if batch.first_seq <= seq < batch.end_seq:
                return batch.message(seq - batch.first_seq)
    return None


def first_seq_of(data: bytes) -> int:
    """Return the number with which an answer to /topic/read begins. Raises BadLog."""
    with _checked():
        return FileHeader.decode(data).first_seq
