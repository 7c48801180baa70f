"""Syncing logs off the event loop, by `--sync-every` and `--sync-timeout`.

With `--sync-every=1`, publishers get their answers only after the sync that covers their messages. Each topic has one
sync at a time, and publishers that arrive meanwhile share the next one (group commit). The next sync begins when the
publishers that the last one answered have published again, or after a millisecond. Otherwise, clients that wait for
their answers would split into two groups that wait for each other's syncs. While a sync takes long, all logs are
written in threads, so that a stalled disk only stops those who need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import gevent

from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import Unsynced, sync_and_close
from nsqd_py.pqueues import Alarm, Alarms
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_pace import DiskPace
from nsqd_py.runtime.histogram import Histogram
from nsqd_py.runtime.threads import in_thread

_DURATION_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

SLOW_NS = 100_000_000
_FIRST_RETRY_NS = 1_000_000_000
_LONGEST_RETRY_NS = 30_000_000_000
# The time that a sync waits for expected publishers, and the number of syncs that do not wait after they did not come.
_GATHER_NS = 1_000_000
_SYNCS_WITHOUT_GATHERING = 16


def _nothing_to_do() -> None:
    pass


def _nothing_to_put_back(topic: Topic, log: TopicLog) -> OSError | None:
    return None


class _TopicSync:
    """The state of one topic's syncs.

    held      waiting publishers, each with the number after its last message
    waiting   number of waiting publishers
    expected  number of publishers for which the next sync waits
    hasty     number of coming syncs that wait for nobody
    began_ns  start of the running sync; 0 if none runs
    retry_ns  files whose sync failed are not synced again before this time
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
        """Return the publishers that the beginning sync covers."""
        taken, self.held = self.held, []
        self.waiting = 0
        return taken

    def expect(self, answered: int) -> None:
        """Let the next sync wait for the publishers that were just answered, in addition to those already waiting."""
        if self.hasty:
            self.hasty -= 1
            self.expected = 1
        else:
            self.expected = self.waiting + answered

    def give_up(self) -> None:
        """Stop waiting for a while, since the expected publishers did not come in time."""
        self.expected = 1
        self.hasty = _SYNCS_WITHOUT_GATHERING

    def failed(self, now_ns: int) -> None:
        self.retry_after_ns = min(max(_FIRST_RETRY_NS, 2 * self.retry_after_ns), _LONGEST_RETRY_NS)
        self.retry_ns = now_ns + self.retry_after_ns

    def succeeded(self) -> None:
        self.retry_ns = self.retry_after_ns = 0


class GroupSync:
    """Syncs the logs of all topics, at most `timeout_ns` after a write.

    durations_s   durations of all syncs, including failed ones
    put_back      restores files that another program removed; returns the error if that failed
    settle_names  waits until `nsqd.dat` is on the disk; may block its greenlet
    """

    def __init__(
        self, every: int, timeout_ns: int, threadpool: Any, alarms: Alarms, clock: Callable[[], int],
        on_sync: Callable[[Topic, OSError | None], None], pace: DiskPace,
        settle_names: Callable[[], None] = _nothing_to_do,
        put_back: Callable[[Topic, TopicLog], OSError | None] = _nothing_to_put_back,
    ) -> None:  # fmt: skip
        self.every = max(1, every)
        self.durations_s = Histogram(_DURATION_BOUNDS_S)
        self._settle_names = settle_names
        self._put_back = put_back
        self._timeout_ns = timeout_ns
        self._threadpool = threadpool
        self._alarms = alarms
        self._clock = clock
        self._on_sync = on_sync
        self._pace = pace
        self._topics: dict[Topic, _TopicSync] = {}
        self._unsynced: dict[Topic, None] = {}  # in the order of their first unsynced write

    def written(self, topic: Topic, publishers: Tickets) -> None:
        """Schedule a sync for a topic that has written messages; hold its publishers if they wait for syncs."""
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
        """Forget a deleted topic and stop its alarms."""
        state = self._topics.pop(topic, None)
        self._unsynced.pop(topic, None)
        self._pace.end_stall(topic)
        if state is not None:
            state.alarm.set(None)
            state.slow_alarm.set(None)
            state.gather_alarm.set(None)

    def hurry(self, most: int) -> None:
        """Begin to sync up to `most` topics, the longest waiting first."""
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
        """Sync until too little waits for another sync; after a failure, retry later."""
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
                    self._settle_names()
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
        except Exception as error:  # after a bug, publishers must not wait forever or be answered with OK
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
        """Release publishers. Those whose messages are in a file that failed get the error."""
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
            error = self._sync_log(topic, log, with_failed=now_ns >= state.retry_ns) or self._put_back(topic, log)
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
        """Sync everything that waits; return the error if some of it failed."""
        taken = log.take_unsynced(with_failed=with_failed)
        in_memory = topic.batches_in_memory() if any(map(_has_failed, taken)) else {}
        in_thread(self._threadpool, sync_and_close, taken, in_memory)
        return log.note_synced(taken)

    def _look_if_slow(self, topic: Topic, now_ns: int) -> None:
        """Mark the disk as slow if the running sync began long ago. Another one may be running by now."""
        state = self._topics.get(topic)
        if state is None or not state.began_ns:
            return
        if now_ns < state.began_ns + SLOW_NS:
            state.slow_alarm.set(state.began_ns + SLOW_NS)
        else:
            self._pace.stall(topic)

    def join(self) -> None:
        """Wait for the running syncs, and those that publishers wait for."""
        for topic, state in list(self._topics.items()):
            if state.held:
                self._start(topic)
        gevent.joinall([state.greenlet for state in self._topics.values() if state.greenlet is not None])


def _has_failed(unsynced: Unsynced) -> bool:
    return unsynced.file is not None and unsynced.file.sync_error is not None
