"""Draining: nsqd refuses new messages, delivers those that it has, and ends.

Publishers get errors and go to other nsqds. This nsqd unregisters from its nsqlookupds, so that no new consumers come.
Connected consumers stay until all queued, deferred and in-flight messages are finished, or the time limit is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event

from nsqd_py.broker.creation import NoLookups

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker
    from nsqd_py.queue.channel import Channel
    from nsqd_py.queue.topic import Topic

POLL_S = 0.1
_POLLS_PER_STATUS = 10
# The time that a new topic has to learn which channels it has on other nsqds.
NEW_TOPICS_S = 5.0
# The exit status after a drain that left messages; 1 and 2 mean that the start failed.
LEFT_MESSAGES = 3
_SECOND_NS = 1_000_000_000


class Drain:
    """The drain of a broker.

    since_ns     start of the drain; None while nsqd serves
    deadline_ns  None without a time limit
    exit_status  exit status of the process: LEFT_MESSAGES after a drain that left messages, else 0
    """

    def __init__(self, broker: Broker) -> None:
        self.since_ns: int | None = None
        self.deadline_ns: int | None = None
        self.exit_status = 0
        self._has_ended = False
        self._broker = broker
        self._begun = Event()

    @property
    def is_active(self) -> bool:
        return self.since_ns is not None

    def begin(self, timeout_ns: int | None = None) -> None:
        """Refuse messages from now on, and end within `timeout_ns`; 0 is no limit, None the limit of the options.

        If the drain has begun before, a given `timeout_ns` counts from now and replaces the earlier limit.
        """
        broker = self._broker
        now_ns = broker.clock()
        if timeout_ns is None and not self.is_active:
            timeout_ns = broker.options.drain_timeout_ns
        if timeout_ns is not None:
            self.deadline_ns = now_ns + timeout_ns if timeout_ns else None
        if not self.is_active:
            self.since_ns = now_ns
            self._refuse_messages()
            self._begun.set()

    def _refuse_messages(self) -> None:
        broker = self._broker
        for topic in broker.topics.values():
            topic.commit()
        broker.open_topics = {}
        for client in broker.clients:
            client.forget_topic()
        broker.log.of_clients.info("NSQ: draining, %d messages to deliver", self.messages_left)

    # ---- what is left

    @property
    def messages_left(self) -> int:
        """The number of unfinished deliveries: a message counts once for each channel that has it."""
        return sum(map(_messages_in, self._broker.topics.values()))

    def is_over(self, now_ns: int) -> bool:
        """True if nothing or no time is left. Messages of a topic without channels count as left."""
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            return True
        return not any(map(_messages_in, self._broker.topics.values()))

    def figures(self) -> dict[str, Any]:
        """Return the figures for /stats, times in s since the epoch; empty while nsqd serves."""
        if self.since_ns is None:
            return {}
        set_ns = self._broker.wall_clock() - self._broker.clock()
        return {
            "draining": True,
            "drain_start_time": (self.since_ns + set_ns) // _SECOND_NS,
            "drain_deadline": None if self.deadline_ns is None else (self.deadline_ns + set_ns) // _SECOND_NS,
            "drain_messages_left": self.messages_left,
        }

    # ---- its greenlet

    def wait_until_over(self, tell: Callable[[str], None]) -> None:
        """Wait until a drain has begun and ended; `tell` gets progress texts. Blocks this greenlet."""
        self._begun.wait()
        self._leave_nsqlookupds()
        polls = 0
        while not self.is_over(self._broker.clock()):
            if polls % _POLLS_PER_STATUS == 0:
                tell(f"draining, {self.messages_left} messages to deliver")
            polls += 1
            gevent.sleep(POLL_S)
        self._report_end()

    def _report_end(self) -> None:
        self._has_ended = True
        left = self.messages_left
        if not left:
            self._broker.log.info("NSQ: drained, no messages are left")
            return
        self.exit_status = LEFT_MESSAGES
        lost = sum(map(_ephemeral_messages_in, self._broker.topics.values()))
        self._broker.log.warning(
            "NSQ: the drain ends at its time limit with %d messages left; %d stay in the log for the next start on "
            "this data path, and %d of ephemeral topics and channels are lost",
            left,
            left - lost,
            lost,
        )

    def report_interruption(self) -> None:
        """Log how many messages are left if a stop comes before the drain has ended."""
        if self.is_active and not self._has_ended:
            self._broker.log.warning("NSQ: stopping while draining, %d messages are left", self.messages_left)

    def _leave_nsqlookupds(self) -> None:
        broker = self._broker
        broker.wait_until_all_started(NEW_TOPICS_S)
        lookups, broker.lookups = broker.lookups, NoLookups()
        lookups.close()
        for topic in broker.topics.values():
            topic.start()


def _messages_in(topic: Topic) -> int:
    return topic.depth + sum(map(_messages_of, topic.channels.values()))


def _ephemeral_messages_in(topic: Topic) -> int:
    if topic.is_ephemeral:
        return _messages_in(topic)
    return sum(_messages_of(channel) for channel in topic.channels.values() if channel.is_ephemeral)


def _messages_of(channel: Channel) -> int:
    return channel.depth + channel.in_flight_count + channel.deferred_count
