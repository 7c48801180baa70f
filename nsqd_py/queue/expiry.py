"""Drop messages that are older than `--message-ttl`.

The age of a message counts from its publish, or from its due time if it was deferred. Channels drop expired messages
when they are about to deliver them. A sweep once a second drops those of channels without consumers.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from nsqd_py.batch import Batch
from nsqd_py.guid import id_time_ns
from nsqd_py.pqueues import Alarms, Run
from nsqd_py.queue.channel import MOST_EXPIRED_AT_ONCE
from nsqd_py.queue.topic import Topic

if TYPE_CHECKING:
    from nsqd_py.queue.channel import Channel

SWEEP_EVERY_NS = 1_000_000_000
_MOST_LOOKS = 100  # batches of requeued messages that a sweep reads in a channel


def published_ns(batch: Batch) -> int:
    """Return the time from which the age of its messages counts, in ns of the steady clock: publish or due time.

    The publish time is that of the id, to 1 ms. The timestamp is of the wall clock, which may have been set since.
    """
    return max(id_time_ns(batch.base_id), batch.due_ns)


class Expiry:
    """Drops expired messages in all topics with a time to live.

    clock     the steady clock of ids and due times: setting the wall clock does not change the age of messages
    on_sweep  called with each topic of which messages were dropped
    """

    def __init__(self, alarms: Alarms, clock: Callable[[], int], on_sweep: Callable[[Topic], None]) -> None:
        self._clock = clock
        self._on_sweep = on_sweep
        self._alarm = alarms.alarm(self._sweep)
        self._topics: dict[Topic, dict[Channel, _Requeued]] = {}

    def add_topic(self, topic: Topic) -> None:
        """Sweep the topic until it is closed, if it has a time to live."""
        if topic.policy.ttl_ns:
            self._topics[topic] = {}
            self._alarm.set_no_later(self._clock())

    def add_channel(self, topic: Topic, channel: Channel) -> None:
        """Make a channel drop expired messages before delivery, if its topic has a time to live."""
        ttl_ns = topic.policy.ttl_ns
        if ttl_ns:
            channel.distributor.expire_before_ns = lambda: self._clock() - ttl_ns

    def _sweep(self, now_ns: int) -> None:
        for topic in [topic for topic in self._topics if topic.is_closed]:
            del self._topics[topic]
        for topic, requeued in self._topics.items():
            if _sweep_topic(topic, requeued, self._clock() - topic.policy.ttl_ns):
                self._on_sweep(topic)
        if self._topics:
            self._alarm.set(now_ns + SWEEP_EVERY_NS)


def _sweep_topic(topic: Topic, requeued: dict[Channel, _Requeued], oldest_ns: int) -> bool:
    """Drop messages older than that time; return True if there were any."""
    low = min([topic.released, *(channel.position.finished.floor for channel in topic.channels.values())])
    if low == topic.next_seq:
        return False
    before = _count(topic)
    try:
        seq = _seq_since(topic, oldest_ns, low)
    except OSError:  # the next sweep tries again
        return False
    _drop_unreleased(topic, seq, oldest_ns)
    for channel in topic.channels.values():
        known = requeued.setdefault(channel, _Requeued(topic))
        known.look_up(islice(channel.position.again, MOST_EXPIRED_AT_ONCE), seq)
        channel.expire_before(seq, known.older_than(oldest_ns))
    for channel in [channel for channel in requeued if channel.is_closed]:
        del requeued[channel]
    return _count(topic) > before


def _seq_since(topic: Topic, oldest_ns: int, low: int) -> int:
    """Return the number of the first message from `low` on that was published since that time. Raises OSError."""
    if topic.log is not None and topic.pace.is_slow:
        raise BlockingIOError(errno.EAGAIN, "the disk is slow")
    by_timestamp = topic.policy.takes_dead_letters
    seq = topic.messages.first_published_since(oldest_ns, low, by_timestamp=by_timestamp)
    return topic.next_seq if seq is None else seq


def _drop_unreleased(topic: Topic, seq: int, oldest_ns: int) -> None:
    """Drop unreleased messages below `seq`, up to the first deferred one that was due at `oldest_ns` or later."""
    young = [low for low, _, due_ns in topic.unreleased_deferred if due_ns >= oldest_ns]
    seq = min([seq, topic.next_seq, *young])
    low = topic.released
    if seq <= low:
        return
    topic.released = seq
    topic.expired_count += seq - low
    topic.unreleased_deferred = [span for span in topic.unreleased_deferred if span[1] > seq]
    for channel in topic.channels.values():
        channel.miss(low, seq)


def _count(topic: Topic) -> int:
    return topic.expired_count + sum(channel.distributor.expired_count for channel in topic.channels.values())


class _Requeued:
    """The publish or due times of requeued runs, by the first number of each run.

    They are read from the batches, because a message may have been deferred when it was published.
    """

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._times_ns: dict[int, int] = {}

    def look_up(self, runs: Iterable[Run], seq: int) -> None:
        """Read the times of runs that end before `seq`; long queues take several sweeps."""
        before = self._times_ns
        self._times_ns = {}
        looks_left = _MOST_LOOKS
        for run in runs:
            if run[1] > seq:
                continue
            time_ns = before.get(run[0])
            if time_ns is None and looks_left:
                looks_left -= 1
                time_ns = self._youngest_ns(run)
            if time_ns is not None:
                self._times_ns[run[0]] = time_ns

    def _youngest_ns(self, run: Run) -> int | None:
        low, high, _, kept = run
        times_ns = []
        while low < high:
            try:
                batch = kept or self._topic.batch_at(low)
            except OSError:
                return None
            if batch is None:
                break
            times_ns.append(published_ns(batch))
            low = max(low + 1, batch.end_seq)
        return max(times_ns, default=None)

    def older_than(self, oldest_ns: int) -> frozenset[int]:
        """Return the first numbers of the runs that are older than that time."""
        return frozenset(low for low, time_ns in self._times_ns.items() if time_ns < oldest_ns)
