"""Bringing logs to the disk: `--sync-every` and `--sync-timeout`, off the event loop.

With `--sync-every=1` publishers are answered only after the sync that covers them. One sync of a topic runs
at a time, and publishers that arrive meanwhile share the next one (group commit). It begins when those that the last
one answered have published again, or after a millisecond: else clients that wait for their answers fall into two
groups, each of which waits for the sync of the other. While a sync takes long, all logs are
written in threads, so that a disk that stalls stops nobody who does not need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import gevent

from nsqd_py.diskqueue.disk_pace import DiskPace
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import Unsynced, sync_and_close
from nsqd_py.pqueues import Alarm, Alarms
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.histogram import Histogram
from nsqd_py.runtime.threads import in_thread

_DURATION_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

SLOW_NS = 100_000_000
_FIRST_RETRY_NS = 1_000_000_000
_LONGEST_RETRY_NS = 30_000_000_000
# How long a sync waits for publishers that are expected, and how many syncs do not wait when they did not come.
_GATHER_NS = 1_000_000
_SYNCS_WITHOUT_GATHERING = 16


class _TopicSync:
    """What of one topic waits for the disk.

    held      publishers, by the number behind what they published
    waiting   how many these are
    expected  how many are waited for before the next sync
    hasty     how many syncs wait for nobody
    began_ns  when the sync began that runs; 0: none does
    retry_ns  before that, files whose sync failed are left alone
    """

    __slots__ = (
        "alarm", "began_ns", "expected", "gather_alarm", "greenlet", "hasty", "held", "retry_after_ns", "retry_ns",
        "slow_alarm", "waiting",
    )  # fmt: skip

    def __init__(self, alarm: Alarm, slow_alarm: Alarm, gather_alarm: Alarm) -> None:
        self.alarm = alarm
        self.slow_alarm = slow_alarm
        self.gather_alarm = gather_alarm
        self.waiting = self.hasty = 0
        self.expected = 1
        self.held: list[tuple[int, Tickets]] = []
        self.greenlet: Any = None
        self.began_ns = 0
        self.retry_ns = 0
        self.retry_after_ns = 0

    def take_held(self) -> list[tuple[int, Tickets]]:
        """Return the publishers that the sync covers that begins now."""
        taken, self.held = self.held, []
        self.waiting = 0
        return taken

    def expect(self, answered: int) -> None:
        """Wait for the publishers that were just answered, beside those that wait already."""
        if self.hasty:
            self.hasty -= 1
            self.expected = 1
        else:
            self.expected = self.waiting + answered

    def give_up(self) -> None:
        """Those that were expected did not come in time: wait for nobody for a while."""
        self.expected = 1
        self.hasty = _SYNCS_WITHOUT_GATHERING

    def failed(self, now_ns: int) -> None:
        self.retry_after_ns = min(max(_FIRST_RETRY_NS, 2 * self.retry_after_ns), _LONGEST_RETRY_NS)
        self.retry_ns = now_ns + self.retry_after_ns

    def succeeded(self) -> None:
        self.retry_ns = self.retry_after_ns = 0


class GroupSync:
    """Syncs the logs of all topics; `timeout_ns` after a write at the latest.

    durations_s   how long syncs took, those that failed too
    put_back      writes files anew that another program removed; returns why that failed
    settle_names  returns when it is on the disk which topics and channels there are; may block its greenlet
    """

    def __init__(
        self, every: int, timeout_ns: int, threadpool: Any, alarms: Alarms, clock: Callable[[], int],
        on_sync: Callable[[Topic, OSError | None], None], pace: DiskPace,
    ) -> None:  # fmt: skip
        self.every = max(1, every)
        self.durations_s = Histogram(_DURATION_BOUNDS_S)
        self.settle_names: Callable[[], None] = _nothing_to_do
        self.put_back: Callable[[Topic, TopicLog], OSError | None] = lambda topic, log: None
        self._timeout_ns = timeout_ns
        self._threadpool = threadpool
        self._alarms = alarms
        self._clock = clock
        self._on_sync = on_sync
        self._pace = pace
        self._topics: dict[Topic, _TopicSync] = {}
        self._unsynced: dict[Topic, None] = {}  # those that were written to first come first

    def written(self, topic: Topic, publishers: Tickets) -> None:
        """A topic wrote messages: the first since its last sync, or `every` of them by now."""
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = self._new_state(topic)
        self._unsynced[topic] = None
        if self.every == 1:
            for publisher, _ in publishers:
                publisher.hold()
            state.held.append((topic.next_seq, publishers))
            state.waiting += len(publishers)
            self._start_when_all_came(topic, state)
        elif topic.unsynced >= self.every:
            self._start(topic)
        else:
            state.alarm.set_no_later(self._clock() + self._timeout_ns)

    def _new_state(self, topic: Topic) -> _TopicSync:
        return _TopicSync(
            self._alarms.alarm(lambda _now_ns: self._start(topic)),
            self._alarms.alarm(lambda now_ns: self._look_if_slow(topic, now_ns)),
            self._alarms.alarm(lambda _now_ns: self._stop_waiting(topic)),
        )

    def forget(self, topic: Topic) -> None:
        """The topic is gone; what waits for it is let go."""
        state = self._topics.pop(topic, None)
        self._unsynced.pop(topic, None)
        self._pace.end_stall(topic)
        if state is not None:
            state.alarm.set(None)
            state.slow_alarm.set(None)
            state.gather_alarm.set(None)

    def hurry(self, most: int) -> None:
        """Begin to sync up to `most` topics, those first that have waited longest."""
        for topic in list(islice(self._unsynced, most)):
            self._start(topic)

    def _start_when_all_came(self, topic: Topic, state: _TopicSync) -> None:
        if state.waiting < state.expected:
            state.gather_alarm.set_no_later(self._clock() + _GATHER_NS)
        else:
            self._start(topic)

    def _stop_waiting(self, topic: Topic) -> None:
        state = self._topics.get(topic)
        if state is not None and state.greenlet is None and state.held:
            state.give_up()
            self._start(topic)

    def _start(self, topic: Topic) -> None:
        state = self._topics.get(topic)
        if state is not None and state.greenlet is None:
            state.greenlet = gevent.spawn(self._run, topic, state)

    def _run(self, topic: Topic, state: _TopicSync) -> None:
        """Sync as long as there is enough that waits for it; after a failure try again in a while."""
        error: OSError | None = None
        try:
            while True:
                held = state.take_held()
                topic.unsynced = 0
                self._unsynced.pop(topic, None)
                state.alarm.set(None)
                state.gather_alarm.set(None)
                error = self._try_to_sync(topic, state, held)
                self._on_sync(topic, error)
                if held:
                    self.settle_names()
                self._answer(topic, held, error)
                if held:
                    state.expect(sum(len(publishers) for _, publishers in held))
                if error is not None or topic.unsynced < self.every or (held and state.waiting < state.expected):
                    break
        finally:
            state.greenlet = None
        if topic in self._topics:
            self._set_next(topic, state, error)

    def _try_to_sync(self, topic: Topic, state: _TopicSync, held: list[tuple[int, Tickets]]) -> OSError | None:
        try:
            return self._sync(topic, state)
        except Exception as error:  # a bug must not keep them waiting, nor leave them answered with OK
            for _, publishers in held:
                for publisher, ticket in publishers:
                    publisher.publish_failed(ticket, OSError(f"internal error: {error!r}"))
                    publisher.release()
            raise

    def _set_next(self, topic: Topic, state: _TopicSync, error: OSError | None) -> None:
        if error is not None:
            state.alarm.set_no_later(state.retry_ns)
        if state.held:
            self._start_when_all_came(topic, state)
        elif topic.unsynced:
            state.alarm.set_no_later(self._clock() + self._timeout_ns)

    def _answer(self, topic: Topic, held: list[tuple[int, Tickets]], error: OSError | None) -> None:
        """Let publishers go; those hear of the error whose messages are in a file that it concerns."""
        for end_seq, publishers in held:
            failure = error and (topic.log.syncs.error_of(end_seq - 1) if topic.log is not None else error)
            for publisher, ticket in publishers:
                if failure is not None:
                    publisher.publish_failed(ticket, failure)
                publisher.release()

    # ---- one sync

    def _sync(self, topic: Topic, state: _TopicSync) -> OSError | None:
        log = topic.log
        if log is None:
            return None
        began_s = time.perf_counter()
        state.began_ns = now_ns = self._clock()
        if state.slow_alarm.due_ns is None:
            state.slow_alarm.set(now_ns + SLOW_NS)
        try:
            error = self._sync_log(topic, log, with_failed=now_ns >= state.retry_ns) or self.put_back(topic, log)
        finally:
            state.began_ns = 0
            self._pace.end_stall(topic)
            self.durations_s.observe(time.perf_counter() - began_s)
        if error is None:
            state.succeeded()
        elif now_ns >= state.retry_ns:
            state.failed(self._clock())
        return error

    def _sync_log(self, topic: Topic, log: TopicLog, *, with_failed: bool) -> OSError | None:
        """Sync all that waits for it; why some of it could not be."""
        taken = log.take_unsynced(with_failed=with_failed)
        in_memory = topic.batches_in_memory() if any(map(_has_failed, taken)) else {}
        in_thread(self._threadpool, sync_and_close, taken, in_memory)
        return log.note_synced(taken)

    def _look_if_slow(self, topic: Topic, now_ns: int) -> None:
        """Rings some time after a sync began; another may run by now."""
        state = self._topics.get(topic)
        if state is None or not state.began_ns:
            return
        if now_ns < state.began_ns + SLOW_NS:
            state.slow_alarm.set(state.began_ns + SLOW_NS)
        else:
            self._pace.stall(topic)

    def join(self) -> None:
        """Wait for the syncs that run, or that publishers wait for."""
        for topic, state in list(self._topics.items()):
            if state.held:
                self._start(topic)
        gevent.joinall([state.greenlet for state in self._topics.values() if state.greenlet is not None])


def _nothing_to_do() -> None:
    pass


def _has_failed(unsynced: Unsynced) -> bool:
    return unsynced.file is not None and unsynced.file.sync_error is not None
