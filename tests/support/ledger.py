"""What clients know of the messages of a topic, over all lives of an nsqd: what has to come, what may, what must not.

A publish that was answered has to come in each channel until it is finished there. Operations that move a channel
are *cuts*: emptying, deleting and making again, seeking. All say "what was published before this is finished"; a seek
says besides "what was published from there on comes again". A cut that was not answered, as nsqd was killed, may have
happened or not; and a message that was published while it was under way may be on either side of it.

All times are ns since the epoch, of the one clock of this machine. Each part is written by one thread at a time.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from tests.support.wire import Message

FOREVER_NS = 2**63
MILLISECOND_NS = 1_000_000
# What consumers did is written at the latest after 0.1 s, with some room for a busy machine.
WRITTEN_AFTER_NS = 400 * MILLISECOND_NS
# nsqd's clock of deadlines runs evenly, and the wall clock may not.
CLOCKS_DIFFER_NS = 5 * MILLISECOND_NS
NUMBER_DIGITS = 9


class Fate(Enum):
    """Of a message in a channel, before what consumers did."""

    MUST_COME = "must come"
    MAY_COME = "may come"
    GONE = "gone"


@dataclass(slots=True)
class Published:
    """One message; `answered_ns` is None while its OK has not come. Those of one MPUB share a `group`."""

    sent_ns: int
    defer_ns: int
    group: int
    answered_ns: int | None = None
    id: bytes = b""
    timestamp_ns: int = 0


@dataclass(slots=True)
class Cut:
    """An operation that moves a channel: what was published before `before_ns` is finished by it.

    spares_until_ns  what was answered before that is not touched
    takes_from_ns    what was sent before that may be spared
    revives          what was published from `before_ns` on comes again
    """

    start_ns: int
    life: int
    before_ns: int = FOREVER_NS
    spares_until_ns: int = 0
    takes_from_ns: int = 0
    revives: bool = False
    end_ns: int = FOREVER_NS
    is_answered: bool = False

    def fate_after(self, message: Published, fate: Fate) -> Fate:
        """What becomes of a message by it."""
        answered_ns = message.answered_ns
        if message.sent_ns >= self.end_ns or (answered_ns is not None and answered_ns < self.spares_until_ns):
            return fate
        was_there = answered_ns is not None and answered_ns < self.start_ns and self.is_answered
        if message.sent_ns >= self.before_ns:
            if not self.revives or fate is Fate.MUST_COME:
                return fate
            return Fate.MUST_COME if was_there else Fate.MAY_COME
        if was_there and answered_ns is not None and answered_ns < self.before_ns:
            # A seek keeps what was deferred, requeued or in flight.
            return Fate.GONE if message.sent_ns >= self.takes_from_ns and not self.revives else Fate.MAY_COME
        return fate if fate is Fate.GONE and not self.revives else Fate.MAY_COME


@dataclass(slots=True)
class Finish:
    """A FIN that was sent for a message that arrived at `delivered_ns`.

    processed_ns  when nsqd is known to have processed it
    """

    delivered_ns: int
    life: int
    processed_ns: int | None = None


@dataclass(slots=True)
class Requeue:
    """A REQ that was sent: next time it has more attempts, and comes not before then."""

    attempts: int
    not_before_ns: int
    life: int
    processed_ns: int | None = None


class Lives:
    """The lives of one nsqd: which it is in, and when the earlier ones ended."""

    def __init__(self) -> None:
        self.current = 0
        self._ends_ns: list[int] = []

    def end(self, now_ns: int) -> None:
        self._ends_ns.append(now_ns)

    def begin(self) -> None:
        self.current = len(self._ends_ns)

    @property
    def count(self) -> int:
        return len(self._ends_ns)

    def has_written(self, life: int, processed_ns: int | None) -> bool:
        """True when what was processed then, in that life, is known to later ones."""
        if processed_ns is None:
            return False
        return life >= len(self._ends_ns) or processed_ns < self._ends_ns[life] - WRITTEN_AFTER_NS


@dataclass
class ChannelLedger:
    """What clients know of one channel.

    crossing  FINs that were under way when their message came again, and that may finish that delivery: a FIN names
              the message, not the delivery
    wrong     sentences on what nsqd must not have done
    """

    topic: TopicLedger
    name: str
    cuts: list[Cut] = field(default_factory=list)
    finished: dict[bytes, Finish] = field(default_factory=dict)
    crossing: dict[bytes, Finish] = field(default_factory=dict)
    requeued: dict[bytes, Requeue] = field(default_factory=dict)
    seen: set[bytes] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    delivered_count: int = 0
    doubled_count: int = 0

    # ---- what clients do and see

    def begin_cut(self, now_ns: int, **kind: int | bool) -> Cut:
        cut = Cut(now_ns, self.topic.lives.current, **kind)  # type: ignore[arg-type]
        self.cuts.append(cut)
        return cut

    def delivered(self, message: Message, now_ns: int) -> None:
        published = self.topic.messages.get(message.body)
        if published is None:
            self._complain(message.body, "was never published")
            return
        self.delivered_count += 1
        self.seen.add(message.body)
        self._check_identity(message, published)
        self._check_fate(message.body, published)
        self._check_finished(message.body, now_ns)
        self._check_requeued(message, now_ns)
        if now_ns < published.sent_ns + published.defer_ns - CLOCKS_DIFFER_NS:
            self._complain(message.body, "came before it was due")

    def finish(self, body: bytes, delivered_ns: int) -> Finish:
        finish = self.finished[body] = Finish(delivered_ns, self.topic.lives.current)
        return finish

    def requeue(self, message: Message, not_before_ns: int) -> Requeue:
        requeue = self.requeued[message.body] = Requeue(message.attempts, not_before_ns, self.topic.lives.current)
        return requeue

    def refused(self, body: bytes) -> None:
        """nsqd did not take the FIN or REQ: the message was not in flight any more."""
        self.finished.pop(body, None)
        self.crossing.pop(body, None)
        self.requeued.pop(body, None)

    # ---- what has to be

    def fate(self, message: Published) -> Fate:
        fate = Fate.MAY_COME if message.answered_ns is None else Fate.MUST_COME
        for cut in self.cuts:
            fate = cut.fate_after(message, fate)
        return fate

    def lost(self) -> list[bytes]:
        """The numbers of what has to come and was never finished."""
        return sorted(
            body[:NUMBER_DIGITS]
            for body, message in self.topic.messages.items()
            if not self._is_done(body, message) and self.fate(message) is Fate.MUST_COME
        )

    def story(self, number: bytes) -> str:
        """All that is known of a message."""
        body, message = next(item for item in self.topic.messages.items() if item[0].startswith(number))
        cuts = [cut for cut in self.cuts if cut.end_ns > message.sent_ns]
        came = "came" if body in self.seen else "never came"
        return f"{self.topic.name}/{self.name} {number!r} {came} {message} {self.finished.get(body)} {cuts}"

    def _is_done(self, body: bytes, message: Published) -> bool:
        """True if it may be finished, and no answered seek has queued it again since.

        A FIN during the seek may be on either side.
        """
        finish = self.finished.get(body) or self.crossing.get(body)
        return finish is not None and finish.delivered_ns >= max(
            (cut.start_ns for cut in self.cuts if cut.revives and cut.is_answered and message.sent_ns >= cut.before_ns), default=0
        )

    def torn_groups(self) -> list[int]:
        """Publishes of several messages that were not answered and of which some came, but not all."""
        groups: dict[int, list[bool]] = {}
        for body, message in self.topic.messages.items():
            if message.answered_ns is None:
                groups.setdefault(message.group, []).append(body in self.seen)
        return [group for group, came in groups.items() if any(came) and not all(came)]

    # ---- checks of one delivery

    def _check_identity(self, message: Message, published: Published) -> None:
        if not published.id:
            published.id, published.timestamp_ns = message.id, message.timestamp_ns
        elif (published.id, published.timestamp_ns) != (message.id, message.timestamp_ns):
            self._complain(message.body, "came with another id or timestamp")

    def _check_fate(self, body: bytes, published: Published) -> None:
        """In the life of a cut the message may have been on its way already."""
        if self.cuts and self.cuts[-1].life < self.topic.lives.current and self.fate(published) is Fate.GONE:
            cuts = [cut for cut in self.cuts if cut.end_ns > published.sent_ns]
            self._complain(body, f"came although it was emptied: {published} {cuts[:5]}")

    def _check_finished(self, body: bytes, now_ns: int) -> None:
        finish = self.finished.pop(body, None)
        crossing = self.crossing.pop(body, None)
        self._check_done(body, finish)
        under_way = finish or crossing
        if under_way is not None and under_way.processed_ns is None and under_way.life == self.topic.lives.current:
            under_way.delivered_ns = now_ns
            self.crossing[body] = under_way

    def _check_done(self, body: bytes, finish: Finish | None) -> None:
        """A message came again for which this FIN was sent."""
        if finish is None or self._was_revived(finish):
            return
        self.doubled_count += 1
        if self.topic.lives.has_written(finish.life, finish.processed_ns):
            self._complain(body, f"came again long after it was finished: {finish}")

    def _was_revived(self, finish: Finish) -> bool:
        return any(cut.revives and cut.end_ns >= finish.delivered_ns for cut in self.cuts)

    def _check_requeued(self, message: Message, now_ns: int) -> None:
        requeue = self.requeued.pop(message.body, None)
        if requeue is None or self.cuts or not self.topic.lives.has_written(requeue.life, requeue.processed_ns):
            return
        if message.attempts <= requeue.attempts:
            self._complain(message.body, f"forgot attempts: {message.attempts} after {requeue.attempts}")
        if now_ns < requeue.not_before_ns - CLOCKS_DIFFER_NS:
            self._complain(message.body, "came before its requeue delay was over")

    def _complain(self, body: bytes, what: str) -> None:
        self.wrong.append(f"{self.topic.name}/{self.name} {body[:NUMBER_DIGITS]!r} {what}")


class TopicLedger:
    """What clients know of one topic."""

    def __init__(self, name: str, channels: Iterable[str], lives: Lives) -> None:
        self.name = name
        self.lives = lives
        self.messages: dict[bytes, Published] = {}
        self.channels = {channel: ChannelLedger(self, channel) for channel in channels}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def publishing(self, count: int, now_ns: int, defer_ns: int = 0) -> dict[bytes, Published]:
        """Messages that are about to be sent as one. Their bodies are new, and of several sizes."""
        with self._lock:
            numbers = list(itertools.islice(self._numbers, count))
            new = {_body(number): Published(now_ns, defer_ns, numbers[0]) for number in numbers}
            self.messages.update(new)
        return new

    @property
    def acknowledged_count(self) -> int:
        return sum(message.answered_ns is not None for message in self.messages.values())

    def __iter__(self) -> Iterator[ChannelLedger]:
        return iter(self.channels.values())


def _body(number: int) -> bytes:
    return b"%0*d" % (NUMBER_DIGITS, number) + b"x" * (number * 37 % 400)
