"""Syncing logs off the event loop, by `--sync-every` and `--sync-timeout`.

With `--sync-every=1`, publishers get their answers only after the sync that covers their messages. Each topic has one
sync at a time, and publishers that arrive during it share the next one (group commit). The next sync begins when the
publishers that the last one answered have published once more, or after a millisecond. Otherwise, clients that wait for
their answers would split into two groups that wait for each other's syncs. While a sync takes long, all logs are
written in threads, so that a stalled disk only stops those who need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from gevent.event import Event

from nsqd_py.alarms import Alarm
from nsqd_py.batch import Tickets
from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.diskqueue.files import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import CallTimer, Unsynced, sync_and_release, sync_directories
from nsqd_py.runtime.disk_speed import SLOW_NS
from nsqd_py.runtime.pacing import Histogram
from nsqd_py.runtime.threads import ReusedGreenlets, in_thread

_DURATION_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_FIRST_RETRY_NS = 1_000_000_000
_LONGEST_RETRY_NS = 30_000_000_000
_GATHER_NS = 1_000_000  # the time that a sync waits for expected publishers


class _TopicSync:
    """The state of one topic's syncs.

    held      waiting publishers, each with the number after its last message
    waiting   number of waiting publishers
    expected  number of publishers for which the next sync waits
    retry_ns  files whose sync failed are not synced again before this time
    """

    __slots__ = ("alarm", "expected", "gather_alarm", "held", "log", "retry_after_ns", "retry_ns", "waiting")

    def __init__(self, log: TopicLog, alarm: Alarm, gather_alarm: Alarm) -> None:
        self.log = log
        self.alarm = alarm
        self.gather_alarm = gather_alarm
        self.waiting = 0
        self.expected = 1
        self.held: list[tuple[int, Tickets]] = []
        self.retry_ns = 0
        self.retry_after_ns = 0


WriteListener = Callable[[Topic, Tickets], None]


class GroupSync:
    """Syncs the logs of all topics, at most --sync-timeout after a write.

    every         number of unsynced messages from which on topics report each write
    sync_every    number of unsynced messages from which on a topic is synced; with 1, publishers wait for that
    durations_s   durations of all syncs, including failed ones
    look          returns an error if another program removed or cut one of the files that were synced
    settle_names  waits until `nsqd.dat` is on the disk; may block its greenlet
    """

    def __init__(
        self,
        services: BrokerServices,
        on_sync: Callable[[Topic, OSError | None], None],
        settle_names: Callable[[], None],
        look: Callable[[Topic, TopicLog, Sequence[LogFile]], OSError | None],
    ) -> None:
        self.sync_every = self.every = max(1, services.options.sync_every)
        self._listener: WriteListener | None = None
        self.durations_s = Histogram(_DURATION_BOUNDS_S)
        self._settle_names = settle_names
        self._look = look
        self._timeout_ns = services.options.sync_timeout_ns
        self._services = services
        self._clock = services.clock
        self._on_sync = on_sync
        self._disk_speed = services.disk_speed
        self._topics: dict[Topic, _TopicSync] = {}
        self._unsynced: dict[Topic, None] = {}  # in the order of their first unsynced write
        self._running: dict[Topic, int | None] = {}  # when its sync began; None while none runs in a thread
        self._slow_alarm = services.alarms.alarm(self._look_if_slow)
        self._greenlets = ReusedGreenlets()
        self._run_ended = Event()
        self._is_closed = False

    def listen(self, listener: WriteListener | None) -> None:
        """Pass each write to `listener`, before the sync; None ends that. The listener may hold the publishers too."""
        self._listener = listener
        self.every = self.sync_every if listener is None else 1

    def written(self, topic: Topic, publishers: Tickets) -> None:
        """Schedule a sync for a topic that has written messages; hold its publishers if they wait for syncs."""
        if self._listener is not None:
            self._listener(topic, publishers)
        state = self._topics.get(topic)
        if state is None:
            state = self._topics[topic] = self._new_state(topic)
        self._unsynced[topic] = None
        if self.sync_every == 1:
            for publisher, _ in publishers:
                publisher.hold()
            state.held.append((topic.next_seq, publishers))
            state.waiting += len(publishers)
            self._start_when_all_came(topic, state)
        elif topic.unsynced >= self.sync_every:
            self._start(topic)
        else:
            state.alarm.set_no_later(self._clock() + self._timeout_ns)

    def _new_state(self, topic: Topic) -> _TopicSync:
        assert topic.log is not None
        alarms = [self._services.alarms.alarm(lambda _now_ns: self._start(topic)) for _ in range(2)]
        return _TopicSync(topic.log, *alarms)

    def forget(self, topic: Topic) -> None:
        """Forget a deleted topic and stop its alarms."""
        state = self._topics.pop(topic, None)
        self._unsynced.pop(topic, None)
        self._disk_speed.end_stall(topic)
        if state is not None:
            state.alarm.close()
            state.gather_alarm.close()
            _answer(state.held, lambda _end_seq: None)  # their messages are deleted, as after their OK

    def flush(self, most: int) -> None:
        """Begin to sync up to `most` topics, the longest waiting first."""
        for topic in list(islice(self._unsynced, most)):
            self._start(topic)

    # ---- when a sync begins

    def _start_when_all_came(self, topic: Topic, state: _TopicSync) -> None:
        if state.waiting < state.expected:
            state.gather_alarm.set_no_later(self._clock() + _GATHER_NS)
        else:
            self._start(topic)

    def _start(self, topic: Topic) -> None:
        if topic in self._topics and topic not in self._running and not self._is_closed:
            self._running[topic] = None
            self._greenlets.spawn(self._run, topic, self._topics[topic])

    # ---- one sync

    def _run(self, topic: Topic, state: _TopicSync) -> None:
        """Sync a topic, answer its publishers, and begin or schedule its next sync."""
        self._slow_alarm.set_no_later(self._clock() + SLOW_NS)
        topic.unsynced = 0
        self._unsynced.pop(topic, None)
        state.alarm.set(None)
        state.gather_alarm.set(None)
        held, state.held, state.waiting = state.held, [], 0
        error: OSError | None = None
        try:
            error = self._sync(topic, state)
            if held:
                self._settle_names()
                answered = sum(len(publishers) for _, publishers in held)
                _answer(held, lambda end_seq: error and state.log.syncs.error_of(end_seq - 1))
                state.expected = state.waiting + answered  # they may publish at once
        except Exception as bug:  # publishers must not wait forever or be answered with OK
            error = OSError(f"internal error: {bug!r}")
            state.retry_ns = self._clock() + _FIRST_RETRY_NS
            _answer(held, lambda _end_seq: error)
            raise
        finally:
            del self._running[topic]
            self._run_ended.set()
            if topic in self._topics:
                self._set_next(topic, state, error)

    def _sync(self, topic: Topic, state: _TopicSync) -> OSError | None:
        """Sync the files that wait for it; return why some of the log is not on the disk, or None."""
        is_retry = self._clock() >= state.retry_ns
        try:
            taken = state.log.syncs.take(with_failed=is_retry)
            timer = CallTimer()
            in_thread(self._services.threadpool, self._sync_files, topic, taken, timer)
            self.durations_s.observe(timer.slowest_ns / 1e9)
        finally:
            self._running[topic] = None  # what follows may wait for others
            self._disk_speed.end_stall(topic)
        files = [unsynced.file for unsynced in taken if unsynced.file is not None]
        error = state.log.note_synced(taken) or self._look(topic, state.log, files)
        if error is None:
            state.retry_ns = state.retry_after_ns = 0
        elif is_retry:
            state.retry_after_ns = min(max(_FIRST_RETRY_NS, 2 * state.retry_after_ns), _LONGEST_RETRY_NS)
            state.retry_ns = self._clock() + state.retry_after_ns
        self._on_sync(topic, error)
        return error

    def _sync_files(self, topic: Topic, taken: Sequence[Unsynced], timer: CallTimer) -> None:
        """Sync files, then their directory; runs in a thread."""
        self._running[topic] = self._clock()
        with timer:
            sync_and_release([unsynced for unsynced in taken if unsynced.file is not None])
            sync_directories([unsynced for unsynced in taken if unsynced.file is None])

    def _set_next(self, topic: Topic, state: _TopicSync, error: OSError | None) -> None:
        if error is not None:
            state.alarm.set_no_later(state.retry_ns)
        if state.held:
            self._start_when_all_came(topic, state)
        elif error is None and topic.unsynced >= self.sync_every:
            self._start(topic)
        elif topic.unsynced:
            state.alarm.set_no_later(self._clock() + self._timeout_ns)

    def _look_if_slow(self, now_ns: int) -> None:
        """Mark the disk as slow if a sync began long ago."""
        for topic, began_ns in self._running.items():
            if began_ns is None or now_ns < began_ns + SLOW_NS:
                self._slow_alarm.set_no_later((began_ns or now_ns) + SLOW_NS)
            elif topic in self._topics:
                self._disk_speed.stall(topic)

    def join(self) -> None:
        """Wait for the running syncs, and those that publishers wait for."""
        for topic, state in list(self._topics.items()):
            if state.held:
                self._start(topic)
        while self._running:
            self._run_ended.clear()
            self._run_ended.wait()

    def close(self) -> None:
        """Wait for the running syncs, and begin no others: logs are synced and restored when they are closed."""
        self.join()
        self._is_closed = True


def _answer(held: list[tuple[int, Tickets]], failure_of: Callable[[int], OSError | None]) -> None:
    """Release publishers. Those whose messages are in a file that failed get the error."""
    while held:
        end_seq, publishers = held.pop(0)
        failure = failure_of(end_seq)
        for publisher, ticket in publishers:
            if failure is not None:
                publisher.publish_failed(ticket, failure)
            publisher.release()
