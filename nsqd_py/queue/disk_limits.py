"""How much may be written: `--max-topic-bytes`, `--max-disk-bytes` and `--min-free-disk-bytes`.

Who publishes hears of a limit before the disk is full; what consumers do is written from the reserve. Topics are
granted room in portions, for which the disk is looked at four times a second, and ask again only when those are
used up: a publish costs one comparison.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.pqueues import Alarms
from nsqd_py.runtime.logs import Log

if TYPE_CHECKING:
    from nsqd_py.queue.topic import Topic

LOOK_EVERY_NS = 250_000_000
_PORTION_BYTES = 1024 * 1024
_SHARE = 16  # of what is left, the part that a topic is granted at once: the headers of new files are not counted
_SCARCE_BYTES = 256 * 1024 * 1024
_UNLIMITED = 1 << 62


class NoRoom(OSError):
    """A limit on disk space is reached."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.ENOSPC, reason)


class DiskSpace:
    """Grants room to the topics of one nsqd.

    look_at_disk  returns the free bytes of the disk
    make_room     drops what of a topic's log nobody needs any more
    """

    def __init__(
        self,
        look_at_disk: Callable[[], int],
        most_bytes: int,
        reserve_bytes: int,
        topics: Callable[[], Iterable[Topic]],
        make_room: Callable[[Topic], None],
        alarms: Alarms,
        clock: Callable[[], int],
        report: Log,
    ) -> None:
        self._look_at_disk = look_at_disk
        self._most_bytes = most_bytes
        self._reserve_bytes = reserve_bytes
        self._topics = topics
        self._make_room = make_room
        self._clock = clock
        self._report = report
        self._alarm = alarms.alarm(self._on_alarm)
        self._holders: set[Topic] = set()
        self._full: dict[Topic, int] = {}
        self._looked_ns = -LOOK_EVERY_NS
        self._left_bytes = 0
        self._is_scarce = False
        self._shortage = ""
        self._refused_bytes = 0
        self._reported = ""

    # ---- what topics ask for

    def grant(self, topic: Topic, size_bytes: int) -> int:
        """How many bytes the topic may write before it asks again, `size_bytes` at least. Raises NoRoom."""
        self._look(self._clock())
        left = self._left_of(topic)
        if size_bytes > left and topic not in self._full:  # else it is done four times a second
            self._make_room(topic)
            left = self._left_of(topic)
        if size_bytes > left:
            if size_bytes <= topic.policy.max_bytes:  # one that never fits is no trouble of the disk
                self._full[topic] = size_bytes
            self._tell()
            raise NoRoom(_topic_reason(topic))
        if size_bytes > self._left_bytes and self._holders:  # they may have room that they do not use
            self._look_now(self._clock())
        if size_bytes > self._left_bytes:
            reason = self._shortage or self._reason()
            if not self._most_bytes or size_bytes <= self._most_bytes:  # likewise
                self._refused_bytes = size_bytes
                self._shortage = reason
            self._tell()
            raise NoRoom(reason)
        granted = max(size_bytes, min(_PORTION_BYTES, self._left_bytes // _SHARE, left // _SHARE))
        self._left_bytes -= granted
        self._holders.add(topic)
        return granted

    def _left_of(self, topic: Topic) -> int:
        """Bytes until the topic is at the limit of its own."""
        if not topic.policy.max_bytes or topic.log is None:
            return _UNLIMITED
        return topic.policy.max_bytes - topic.log.size_bytes - FILE_HEADER_BYTES

    def allocates_ahead(self) -> bool:
        """False where there is little space: then none is taken before it is needed."""
        return not self._is_scarce

    def forget(self, topic: Topic) -> None:
        self._holders.discard(topic)
        self._full.pop(topic, None)

    # ---- what the disk has

    def trouble(self) -> str | None:
        """Why publishes are refused, to any topic; None when they are not."""
        return self.shortage() or next(map(_topic_reason, self._full), None)

    def shortage(self) -> str | None:
        """Return why publishes to all topics are refused, or None."""
        self._look(self._clock())
        return self._shortage or None

    def refused(self) -> dict[str, str]:
        """Return the topics that are at a limit of their own, by name, with the reason."""
        return {topic.name: _topic_reason(topic) for topic in self._full}

    def _look(self, now_ns: int) -> None:
        if now_ns >= self._looked_ns + LOOK_EVERY_NS:
            self._look_now(now_ns)

    def _look_now(self, now_ns: int) -> None:
        """Take back what was granted and is not used, and see what there is. There is a shortage until there is room
        for what was refused last, not only for a few bytes.
        """
        self._looked_ns = now_ns
        self._alarm.set_no_later(now_ns + LOOK_EVERY_NS)
        for topic in self._holders:
            topic.room_bytes = 0
        self._holders.clear()
        self._left_bytes = min(self.free_bytes - self._reserve_bytes, self._unused_bytes())
        if self._left_bytes >= max(1, self._refused_bytes):
            self._shortage, self._refused_bytes = "", 0
        else:
            self._shortage = self._reason()
        self._set_scarce(self._left_bytes < _SCARCE_BYTES)

    @property
    def free_bytes(self) -> int:
        """The free bytes of the disk."""
        return self._look_at_disk()

    def _unused_bytes(self) -> int:
        """Of --max-disk-bytes."""
        if not self._most_bytes:
            return _UNLIMITED
        return self._most_bytes - sum(topic.log.size_bytes for topic in self._topics() if topic.log is not None)

    def _set_scarce(self, is_scarce: bool) -> None:
        if is_scarce != self._is_scarce:
            self._is_scarce = is_scarce
            for topic in self._topics():
                if topic.log is not None:
                    topic.log.allocate_ahead(wanted=not is_scarce)

    def _on_alarm(self, now_ns: int) -> None:
        """Look again while anybody writes, or is kept from it."""
        for topic, size_bytes in list(self._full.items()):
            self._make_room(topic)
            if size_bytes <= self._left_of(topic):
                del self._full[topic]
        if self._shortage:
            for topic in list(self._topics()):
                self._make_room(topic)
        if self._holders or self._full or self._shortage:
            self._look_now(now_ns)
        self._tell()

    # ---- in words

    def _reason(self) -> str:
        if self._unused_bytes() < self.free_bytes - self._reserve_bytes:
            return f"all logs together have the {self._most_bytes} bytes of --max-disk-bytes"
        return f"no more than the {self._reserve_bytes} bytes of --min-free-disk-bytes are free"

    def _tell(self) -> None:
        """Log what is new: not each publish that is refused."""
        trouble = self._shortage or next(map(_topic_reason, self._full), "")
        if trouble and trouble != self._reported:
            self._report.error("NSQ: publishing is refused: %s", trouble)
        elif self._reported and not trouble:
            self._report.info("NSQ: there is room on the disk again")
        self._reported = trouble


def _topic_reason(topic: Topic) -> str:
    return f"the log of topic {topic.name} has the {topic.policy.max_bytes} bytes of --max-topic-bytes"
