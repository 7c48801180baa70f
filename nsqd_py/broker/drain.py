"""The drain: nsqd refuses new messages, delivers those that it has, and ends.

Publishers get errors and go to other nsqds. nsqd unregisters from its nsqlookupds, so that no new consumers come. Connected
consumers stay until all queued, deferred and in-flight messages are finished, or the time limit is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gevent
from gevent.event import Event

from nsqd_py.broker.services import BrokerServices, Lookups, Topic
from nsqd_py.settings.durations import SECOND_NS

POLL_S = 0.1
_POLLS_PER_STATUS = 10
# The time that a new topic has to learn which channels it has on other nsqds.
NEW_TOPICS_S = 5.0
# The exit status after a drain that left messages; 1 and 2 mean that the start failed.
LEFT_MESSAGES = 3


class Drain:
    """The drain of a broker.

    since_ns     start of the drain; None while nsqd serves
    deadline_ns  None without a time limit
    exit_status  exit status of the process: LEFT_MESSAGES after a drain that left messages, else 0
    """

    def __init__(self, services: BrokerServices, topics: Mapping[str, Topic]) -> None:
        self.since_ns: int | None = None
        self.deadline_ns: int | None = None
        self.exit_status = 0
        self._has_ended = False
        self._services = services
        self._topics = topics
        self._begun = Event()

    @property
    def is_active(self) -> bool:
        return self.since_ns is not None

    def begin(self, timeout_ns: int | None = None) -> bool:
        """Begin, and end within `timeout_ns`; 0 is no limit, None the limit of the options. Return False if it runs.

        If the drain has begun before, a given `timeout_ns` counts from now and replaces the earlier limit.
        """
        now_ns = self._services.clock()
        if timeout_ns is None and not self.is_active:
            timeout_ns = self._services.options.drain_timeout_ns
        if timeout_ns is not None:
            self.deadline_ns = now_ns + timeout_ns if timeout_ns else None
        if self.is_active:
            return False
        self.since_ns = now_ns
        self._begun.set()
        return True

    # ---- what is left

    @property
    def messages_left(self) -> int:
        """The number of unfinished deliveries: a message counts once for each channel that has it."""
        return sum(map(_messages_in, self._topics.values()))

    def is_over(self, now_ns: int) -> bool:
        """True if nothing or no time is left. Messages of a topic without channels count as left."""
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            return True
        return not any(map(_messages_in, self._topics.values()))

    def statistics(self) -> dict[str, Any]:
        """Return the statistics for /stats, times in s since the epoch; empty while nsqd serves."""
        if self.since_ns is None:
            return {}
        set_ns = self._services.wall_clock() - self._services.clock()
        drain_deadline = None
        if self.deadline_ns is not None:
            drain_deadline = (self.deadline_ns + set_ns) // SECOND_NS
        return {
            "draining": True,
            "drain_start_time": (self.since_ns + set_ns) // SECOND_NS,
            "drain_deadline": drain_deadline,
            "drain_messages_left": self.messages_left,
        }

    # ---- its greenlet

    def wait_until_over(self, report: Callable[[str], None], lookups: Callable[[], Lookups]) -> None:
        """Wait until a drain has begun and ended; `report` gets progress texts. Blocks this greenlet."""
        self._begun.wait()
        lookups().wait_until_all_started(NEW_TOPICS_S)
        lookups().close()
        for topic in self._topics.values():
            topic.start()
        polls = 0
        while not self.is_over(self._services.clock()):
            if polls % _POLLS_PER_STATUS == 0:
                report(f"draining, {self.messages_left} messages to deliver")
            polls += 1
            gevent.sleep(POLL_S)
        self._report_end()

    def _report_end(self) -> None:
        self._has_ended = True
        left = self.messages_left
        if not left:
            self._services.log.info("NSQ: drained, no messages are left")
            return
        self.exit_status = LEFT_MESSAGES
        self._services.log.warning(
            "NSQ: the drain ends at its time limit with %d messages left, which stay in the log for the next start on this "
            "data path, except those of ephemeral topics and channels",
            left,
        )

    def report_interruption(self) -> None:
        """Log how many messages are left if a stop comes before the drain has ended."""
        if self.is_active and not self._has_ended:
            self._services.log.warning(
                "NSQ: stopping while draining, %d messages are left", self.messages_left
            )


def _messages_in(topic: Topic) -> int:
    channels = topic.channels.values()
    return topic.depth + sum(
        channel.depth + channel.in_flight_count + channel.deferred_count for channel in channels
    )
