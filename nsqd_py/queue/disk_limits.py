"""Limits on disk space: `--max-topic-bytes`, `--max-disk-bytes` and `--min-free-disk-bytes`.

Publishes are refused before the disk is full; the reserve remains for the journals of consumers. Topics are granted
space in portions, and ask again only when a portion is used up, so that a publish costs one comparison. The free space
of the disk is read four times a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.pqueues.alarms import Alarms, Clock
from nsqd_py.queue.storage import NoRoom, WriteRefused
from nsqd_py.queue.topic import AnyTopic
from nsqd_py.runtime.logs.lines import LineWriter

POLL_EVERY_NS = 250_000_000
_PORTION_BYTES = 1024 * 1024
# A grant is at most 1/16 of the remaining bytes, because the headers of new files are not counted.
_GRANT_PART = 16
_SCARCE_BYTES = 256 * 1024 * 1024
_UNLIMITED = 1 << 62


class FreeDisk(Protocol):
    """The disk that holds the data path; `total_bytes` is its size, 0 until it is known."""

    total_bytes: int

    def free_bytes(self) -> int: ...


@dataclass(eq=False, repr=False)
class DiskSpace:
    """Grants disk space to the topics of one nsqd.

    check_topic  raises WriteRefused if a topic must not be written to yet
    _make_room   drops unneeded segments of a topic's log
    _refusal     why all writes are refused now; None if they are not
    """

    _disk: FreeDisk
    _most_bytes: int
    _reserve_bytes: int
    _topics: Callable[[], Iterable[AnyTopic]]
    _make_room: Callable[[AnyTopic], None]
    _alarms: Alarms
    _clock: Clock
    _report: LineWriter
    check_topic: Callable[[AnyTopic], None] = lambda _: None
    _granted: set[AnyTopic] = field(default_factory=set)
    _full: dict[AnyTopic, int] = field(default_factory=dict)
    _polled_ns: int = -POLL_EVERY_NS
    _left_bytes: int = 0
    _is_scarce: bool = False
    _shortage: str = ""
    _refused_bytes: int = 0
    _reported: str = ""
    _refusal: WriteRefused | None = None

    def __post_init__(self) -> None:
        self._alarm = self._alarms.alarm(self._on_alarm)

    # ---- granting

    def grant(self, topic: AnyTopic, size_bytes: int) -> int:
        """Return the bytes that the topic may write before it asks again, at least `size_bytes`. Raises WriteRefused."""
        if self._refusal is not None:
            raise self._refusal
        self.check_topic(topic)
        self._poll_if_due(self._clock())
        left = self._left_of(topic)
        # For a full topic the alarm does it four times a second.
        if size_bytes > left and topic not in self._full:
            self._make_room(topic)
            left = self._left_of(topic)
        if size_bytes > left:
            if size_bytes <= topic.policy.max_bytes:  # a publish that never fits does not make the topic full
                self._full[topic] = size_bytes
            self._log_changes()
            raise NoRoom(_topic_reason(topic))
        if size_bytes > self._left_bytes and self._granted:  # take back granted space that is not used
            self._poll(self._clock())
        if size_bytes > self._left_bytes:
            reason = self._shortage or self._reason()
            if not self._most_bytes or size_bytes <= self._most_bytes:  # likewise, no shortage
                self._refused_bytes = size_bytes
                self._shortage = reason
            self._log_changes()
            raise NoRoom(reason)
        granted = max(size_bytes, min(_PORTION_BYTES, self._left_bytes // _GRANT_PART, left // _GRANT_PART))
        self._left_bytes -= granted
        self._granted.add(topic)
        return granted

    def refuse_all(self, refusal: WriteRefused | None) -> None:
        """Refuse all writes for this reason; None ends that."""
        self._refusal = refusal
        self._poll(self._clock())  # topics ask before the next write

    def _left_of(self, topic: AnyTopic) -> int:
        """Return the bytes that the topic may still write below its --max-topic-bytes."""
        if not topic.policy.max_bytes or topic.log is None:
            return _UNLIMITED
        size_bytes: int = topic.log.size_bytes
        return topic.policy.max_bytes - size_bytes - FILE_HEADER_BYTES

    def allocates_ahead(self) -> bool:
        """False if space is scarce: then logs allocate no disk space in advance."""
        return not self._is_scarce

    def forget(self, topic: AnyTopic) -> None:
        self._granted.discard(topic)
        self._full.pop(topic, None)

    # ---- the state of the disk

    def problem(self) -> str | None:
        """Return why publishes to at least one topic are refused, or None."""
        return self.shortage() or next(map(_topic_reason, self._full), None)

    def shortage(self) -> str | None:
        """Return why publishes to all topics are refused, or None."""
        self._poll_if_due(self._clock())
        return self._shortage or None

    def refused(self) -> dict[str, str]:
        """Return the topics at their --max-topic-bytes: name to reason."""
        return {topic.name: _topic_reason(topic) for topic in self._full}

    def _poll_if_due(self, now_ns: int) -> None:
        if now_ns >= self._polled_ns + POLL_EVERY_NS:
            self._poll(now_ns)

    def _poll(self, now_ns: int) -> None:
        """Take back unused grants and read the free space of the disk.

        A shortage ends when the last refused publish would fit, not as soon as a few bytes are free.
        """
        self._polled_ns = now_ns
        self._alarm.set_no_later(now_ns + POLL_EVERY_NS)
        for topic in self._granted:
            topic.quota_bytes = 0
        self._granted.clear()
        self._left_bytes = min(self.free_bytes - self._reserve_bytes, self._unused_bytes())
        if self._left_bytes >= max(1, self._refused_bytes):
            self._shortage = ""
            self._refused_bytes = 0
        else:
            self._shortage = self._reason()
        self._set_scarce(self._left_bytes < _SCARCE_BYTES)

    @property
    def free_bytes(self) -> int:
        """The free bytes of the disk."""
        return self._disk.free_bytes()

    def left_percent(self) -> int:
        """Return the part of the disk, or of --max-disk-bytes if that is less, that publishes may still take."""
        percents = [100]
        if self._disk.total_bytes:
            left_bytes = self.free_bytes - self._reserve_bytes
            percents.append(100 * left_bytes // self._disk.total_bytes)
        if self._most_bytes:
            percents.append(100 * self._unused_bytes() // self._most_bytes)
        return max(0, min(percents))

    def _unused_bytes(self) -> int:
        """Return the bytes of --max-disk-bytes that are not used."""
        if not self._most_bytes:
            return _UNLIMITED
        used_bytes: int = sum(topic.log.size_bytes for topic in self._topics() if topic.log is not None)
        return self._most_bytes - used_bytes

    def _set_scarce(self, is_scarce: bool) -> None:
        if is_scarce != self._is_scarce:
            self._is_scarce = is_scarce
            for topic in self._topics():
                if topic.log is not None:
                    topic.log.allocate_ahead(enabled=not is_scarce)

    def _on_alarm(self, now_ns: int) -> None:
        """Update the limits while any topic has a grant or is refused."""
        for topic, size_bytes in list(self._full.items()):
            self._make_room(topic)
            if size_bytes <= self._left_of(topic):
                del self._full[topic]
        if self._shortage:
            for topic in list(self._topics()):
                self._make_room(topic)
        if self._granted or self._full or self._shortage:
            self._poll(now_ns)
        self._log_changes()

    # ---- log lines

    def _reason(self) -> str:
        if self._unused_bytes() < self.free_bytes - self._reserve_bytes:
            return f"all logs together have the {self._most_bytes} bytes of --max-disk-bytes"
        return f"no more than the {self._reserve_bytes} bytes of --min-free-disk-bytes are free"

    def _log_changes(self) -> None:
        """Log when publishing starts or stops being refused, not each refused publish."""
        problem = self._shortage or next(map(_topic_reason, self._full), "")
        if problem and problem != self._reported:
            self._report.error("NSQ: publishing is refused: %s", problem)
        elif self._reported and not problem:
            self._report.info("NSQ: there is room on the disk again")
        self._reported = problem


def _topic_reason(topic: AnyTopic) -> str:
    return f"the log of topic {topic.name} has the {topic.policy.max_bytes} bytes of --max-topic-bytes"
