"""Drop messages that are older than `--message-ttl`.

The age of a message counts from its publish, or from its due time if it was deferred. Channels drop expired messages
when they are about to deliver them. A sweep once a second drops those of channels without consumers.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import islice

from nsqd_py.pqueues.alarms import Alarm, Alarms, Clock
from nsqd_py.queue.channel import Channel
from nsqd_py.queue.reading.message_reader import published_ns
from nsqd_py.queue.topic import AnyTopic

SWEEP_EVERY_NS = 1_000_000_000
_MOST_CHECKED = 100  # requeued runs that a sweep checks in a channel


class Expiry:
    """Drops expired messages in all topics with a time to live.

    clock     the steady clock of ids and due times: setting the wall clock does not change the age of messages
    on_sweep  called with each topic of which messages were dropped
    """

    def __init__(self, alarms: Alarms, clock: Clock, on_sweep: Callable[[AnyTopic], None]) -> None:
        self._alarms = alarms
        self._clock = clock
        self._on_sweep = on_sweep

    def add_topic(self, topic: AnyTopic) -> None:
        """Sweep the topic until it is closed, if it has a time to live."""
        if topic.policy.ttl_ns:
            alarm = self._alarms.alarm(lambda _now_ns: self._sweep(topic, alarm))
            alarm.set(self._clock())

    def add_channel(self, topic: AnyTopic, channel: Channel) -> None:
        """Make a channel drop expired messages before delivery, if its topic has a time to live."""
        ttl_ns = topic.policy.ttl_ns
        if ttl_ns:
            channel.distributor.expire_before_ns = lambda: self._clock() - ttl_ns

    def _sweep(self, topic: AnyTopic, alarm: Alarm) -> None:
        if topic.is_closed:
            alarm.close()
            return
        alarm.set(self._clock() + SWEEP_EVERY_NS)  # first: also if the sweep fails
        if _sweep_topic(topic, self._clock() - topic.policy.ttl_ns):
            self._on_sweep(topic)


def _sweep_topic(topic: AnyTopic, oldest_ns: int) -> bool:
    """Drop messages older than that time; return True if there were any."""
    floors = [channel.position.settled_floor for channel in topic.channels.values()]
    low = min([topic.released, *floors])
    if low == topic.next_seq:
        return False
    before = _count(topic)
    try:
        seq = _seq_since(topic, oldest_ns, low)
    except OSError:  # the next sweep retries
        return False
    _drop_unreleased(topic, seq, oldest_ns)
    for channel in topic.channels.values():
        channel.expire_before(seq, _expired(topic, channel, seq, oldest_ns))
    return _count(topic) > before


def _seq_since(topic: AnyTopic, oldest_ns: int, low: int) -> int:
    """Return the number of the first message from `low` on that was published since that time. Raises OSError."""
    if topic.log is not None and topic.disk_speed.is_slow:
        raise BlockingIOError(errno.EAGAIN, "the disk is slow")
    by_timestamp = topic.policy.takes_dead_letters
    seq = topic.messages.first_published_since(oldest_ns, low, by_timestamp=by_timestamp)
    return topic.next_seq if seq is None else seq


def _drop_unreleased(topic: AnyTopic, seq: int, oldest_ns: int) -> None:
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


def _count(topic: AnyTopic) -> int:
    of_channels = sum(channel.distributor.expired_count for channel in topic.channels.values())
    return topic.expired_count + of_channels


def _expired(topic: AnyTopic, channel: Channel, seq: int, oldest_ns: int) -> set[int]:
    """Return the first numbers of expired runs among the first requeued ones.

    Their age is read from the batches, because a message may have been deferred when it was published.
    """
    found = set()
    for low, high, _, retained in islice(channel.position.requeued, _MOST_CHECKED):
        if high > seq:
            continue
        at = low
        times_ns = []
        try:
            while at < high and (batch := retained or topic.messages.batch_at(at)) is not None:
                times_ns.append(published_ns(batch))
                at = max(at + 1, batch.end_seq)
        except OSError:  # the next sweep retries
            continue
        if times_ns and max(times_ns) < oldest_ns:
            found.add(low)
    return found
