"""Bringing logs to the disk: `--sync-every` and `--sync-timeout`, off the event loop.

With `--sync-every=1` publishers are answered only after the sync that covers them. One sync of a topic runs
at a time, and all who came meanwhile share the next one (group commit).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

import gevent

from nsqd_py.histogram import Histogram
from nsqd_py.pqueues import Alarm, Alarms
from nsqd_py.threads import in_thread
from nsqd_py.topic import Publisher, Topic

_DURATION_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_Ticket = tuple[Publisher, int]


class _TopicSync:
    """What of one topic waits for the disk."""

    __slots__ = ("alarm", "greenlet", "held")

    def __init__(self, alarm: Alarm) -> None:
        self.alarm = alarm
        self.held: list[_Ticket] = []
        self.greenlet: Any = None


class GroupSync:
    """Syncs the logs of all topics; `timeout_ns` after a write at the latest.

    durations_s  how long syncs took, those that failed too
    """

    def __init__(
        self, every: int, timeout_ns: int, threadpool: Any, alarms: Alarms, clock: Callable[[], int],
        on_sync: Callable[[Topic, OSError | None], None],
    ) -> None:  # fmt: skip
        self.every = max(1, every)
        self.durations_s = Histogram(_DURATION_BOUNDS_S)
        self._timeout_ns = timeout_ns
        self._threadpool = threadpool
        self._alarms = alarms
        self._clock = clock
        self._on_sync = on_sync
        self._topics: dict[Topic, _TopicSync] = {}

    def written(self, topic: Topic, publishers: list[_Ticket]) -> None:
        """A topic wrote messages: the first since its last sync, or `every` of them by now."""
        state = self._topics.get(topic)
        if state is None:
            state = _TopicSync(self._alarms.alarm(lambda _now_ns: self._start(topic)))
            self._topics[topic] = state
        if self.every == 1:
            for publisher, _ in publishers:
                publisher.hold()
            state.held.extend(publishers)
        if topic.unsynced >= self.every:
            self._start(topic)
        elif state.alarm.due_ns is None:
            state.alarm.set(self._clock() + self._timeout_ns)

    def forget(self, topic: Topic) -> None:
        """The topic is gone; what waits for it is let go."""
        state = self._topics.pop(topic, None)
        if state is not None:
            state.alarm.set(None)

    def _start(self, topic: Topic) -> None:
        state = self._topics.get(topic)
        if state is not None and state.greenlet is None:
            state.greenlet = gevent.spawn(self._run, topic, state)

    def _run(self, topic: Topic, state: _TopicSync) -> None:
        """Sync as long as there is enough that waits for it; after a failure try again in a while."""
        error: OSError | None = None
        try:
            while True:
                held, state.held = state.held, []
                topic.unsynced = 0
                state.alarm.set(None)
                error = self._sync(topic)
                self._on_sync(topic, error)
                for publisher, ticket in held:
                    if error is not None:
                        publisher.publish_failed(ticket, error)
                    publisher.release()
                if error is not None or (not state.held and topic.unsynced < self.every):
                    break
        finally:
            state.greenlet = None
        if (topic.unsynced or error is not None) and state.alarm.due_ns is None and topic in self._topics:
            state.alarm.set(self._clock() + self._timeout_ns)

    def _sync(self, topic: Topic) -> OSError | None:
        log = topic.log
        if log is None:
            return None
        began_s = time.perf_counter()
        try:
            descriptors = log.take_unsynced()
            in_thread(self._threadpool, sync_and_close, descriptors)
        except OSError as error:
            log.sync_failed()
            return error
        finally:
            self.durations_s.observe(time.perf_counter() - began_s)
        return None

    def join(self) -> None:
        """Wait for the syncs that run."""
        gevent.joinall([state.greenlet for state in self._topics.values() if state.greenlet is not None])


def sync_and_close(descriptors: list[int]) -> None:
    """fdatasync and close each. Runs in a thread. Raises OSError for the first that fails."""
    failed: OSError | None = None
    for descriptor in descriptors:
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            failed = failed or error
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    if failed is not None:
        raise failed
