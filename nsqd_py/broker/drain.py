"""Going out of service: nsqd takes no more messages, delivers those that it has, and ends.

Publishers get errors and go elsewhere. nsqlookupds are told that this nsqd is gone, so that no new consumers come;
those that are connected stay until everything queued, deferred and in flight is finished, or the time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event

from nsqd_py.broker.discovery import NoLookups

if TYPE_CHECKING:
    from nsqd_py.broker.broker import Broker
    from nsqd_py.queue.channel import Channel
    from nsqd_py.queue.topic import Topic

POLL_S = 0.1
_POLLS_PER_STATUS = 10
# How long a topic that was just made may still learn which channels it has elsewhere.
NEW_TOPICS_S = 5.0
# The exit status after a drain that ended with messages left; 1 and 2 are those of a start that failed.
LEFT_MESSAGES = 3
_SECOND_NS = 1_000_000_000


class Drain:
    """Whether a broker is going out of service, since when, and until when at the latest.

    since_ns     None while it serves
    deadline_ns  None without a limit
    exit_status  what the process ends with: LEFT_MESSAGES after a drain that ended with messages left, else 0
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
        """Take no messages from now on, and end within `timeout_ns`: 0 is any time, None that of the options.

        Where it has begun already, a `timeout_ns` counts from now in place of the earlier one.
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
        """Deliveries that are still to be finished: a message counts once for each channel that has it."""
        return sum(map(_messages_in, self._broker.topics.values()))

    def is_over(self, now_ns: int) -> bool:
        """Whether nothing is left, or no time. A topic without channels is not empty: nobody has its messages yet."""
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            return True
        return not any(map(_messages_in, self._broker.topics.values()))

    def figures(self) -> dict[str, Any]:
        """What /stats says of it, times in s since the epoch; nothing while nsqd serves."""
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
        """Returns when nsqd has been asked to drain, and has. Blocks this greenlet. `tell` takes words on progress."""
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
            left, left - lost, lost,
        )  # fmt: skip

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
