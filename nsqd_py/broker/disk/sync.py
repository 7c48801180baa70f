"""Syncing logs off the event loop, by `--sync-every` and `--sync-timeout`.

With `--sync-every=1`, publishers get their answers only after the sync that covers their messages. Each topic has one
sync at a time, and publishers that arrive during it share the next one (group commit). The next sync begins when the
publishers that the last one answered have published once more, or after a millisecond. Otherwise, clients that wait for
their answers would split into two groups that wait for each other's syncs. While a sync takes long, all logs are
written in threads, so that a stalled disk only stops publishers that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from time import monotonic_ns

import gevent
from gevent.event import Event

from nsqd_py.broker.answer_gate import AnswerGate
from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.syncing import Unsynced, give_up, sync_and_release, sync_together
from nsqd_py.errors import InternalError
from nsqd_py.pqueues.alarms import Alarm
from nsqd_py.queue.publish_buffer import Tickets
from nsqd_py.runtime.disk_speed import SLOW_NS
from nsqd_py.runtime.pacing import Histogram
from nsqd_py.runtime.threads import Job

_DURATION_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_FIRST_RETRY_NS = 1_000_000_000
_LONGEST_RETRY_NS = 30_000_000_000
_GATHER_NS = 1_000_000  # the time that a sync waits for expected publishers
_MANY = 256  # when the sync of a topic is due and at least this many wait, one call syncs them all
_A_TURN = 64  # topics of such a sync that are handled before other greenlets run
# The disk counts as slow when a common sync takes longer: it also waits for what other programs write.
_LATE_NS = 5_000_000_000

WriteListener = Callable[[Topic], None]
AnswerHolder = Callable[[Topic, Tickets], None]

# Of each topic for which no publisher waits; nothing is held at it. With many topics, a gate for each takes memory.
_NO_PUBLISHERS = AnswerGate()


@dataclass(slots=True, eq=False)
class _TopicSync:
    """The state of one topic's syncs.

    gate      the publishers that wait for the next sync; the number of a write is that after its last message
    expected  number of publishers for which the next sync waits
    retry_ns  files whose sync failed are not synced again before this time
    """

    log: TopicLog
    alarm: Alarm
    gate: AnswerGate = _NO_PUBLISHERS
    expected: int = 1
    retry_ns: int = 0
    retry_after_ns: int = 0


@dataclass(slots=True, eq=False)
class _Sync:
    """A sync of one topic, which a thread does.

    gate      the publishers that wait for it
    is_retry  True if it has the files whose last sync failed, too
    taken     what it syncs; nothing is left of it when its result is noted
    """

    topic: Topic
    state: _TopicSync
    gate: AnswerGate
    is_retry: bool
    taken: Sequence[Unsynced] = ()


@dataclass(eq=False)
class GroupSync:
    """Syncs the logs of all topics, at most --sync-timeout after a write.

    on_sync       called with the error of each sync, or None
    when_settled  calls its argument when `nsqd.dat` is on the disk
    check_synced  returns an error if another program removed or cut one of the files that were synced
    every         number of unsynced messages from which on topics report each write
    sync_every    number of unsynced messages from which on a topic is synced; with 1, publishers wait for that
    durations_s   durations of all syncs, including failed ones
    """

    services: BrokerServices
    on_sync: Callable[[Topic, OSError | None], None]
    when_settled: Callable[[Callable[[], None]], None]
    check_synced: Callable[[Topic, TopicLog, Sequence[LogFile]], OSError | None]

    def __post_init__(self) -> None:
        self.sync_every = self.every = max(1, self.services.options.sync_every)
        self._listeners: list[WriteListener] = []
        self._holders: list[AnswerHolder] = []
        self.durations_s = Histogram(_DURATION_BOUNDS_S)
        self._timeout_ns = self.services.options.sync_timeout_ns
        self._clock = self.services.clock
        self._disk_speed = self.services.disk_speed
        self._topics: dict[Topic, _TopicSync] = {}
        self._unsynced: dict[Topic, int] = {}  # when each must be synced, in this order
        # When its sync began; None while none runs in a thread. The topic None stands for those of `_together`. The event loop
        # alone adds and removes topics; a thread replaces the value of a topic that stays there until its job has ended.
        self._running: dict[Topic | None, int | None] = {}
        self._together: dict[Topic, Sequence[Unsynced]] = {}  # what a common sync has taken
        self._due_alarm = self.services.alarms.alarm(self._start_due)
        self._slow_alarm = self.services.alarms.alarm(self._mark_if_slow)
        self._run_ended = Event()
        self._is_closed = False

    def listen(self, listener: WriteListener) -> None:
        """Pass each write to this listener, too, before the sync."""
        self._listeners = [*self._listeners, listener]
        self.every = 1

    def stop_listening(self, listener: WriteListener) -> None:
        """Pass nothing to this listener any more, if it was one."""
        self._listeners = [each for each in self._listeners if each != listener]
        if not self._listeners and not self._holders:
            self.every = self.sync_every

    def add_holder(self, holder: AnswerHolder) -> None:
        """Let another part hold the publishers of each write, until it has their messages; see `AnswerGate`.

        It is called after the listeners: what it counts as written has been passed to whoever will confirm it.
        """
        self._holders = [*self._holders, holder]
        self.every = 1

    def written(self, topic: Topic, publishers: Tickets) -> None:
        """Schedule a sync for a topic that has written messages; hold its publishers if they wait for syncs."""
        for listener in self._listeners:
            listener(topic)
        for holder in self._holders:
            holder(topic, publishers)
        state = self._topics.get(topic)
        if state is None:
            assert topic.log is not None
            alarm = self.services.alarms.alarm(lambda _now_ns: self._start(topic))
            state = _TopicSync(topic.log, alarm)
            self._topics[topic] = state
        due_ns = self._unsynced.setdefault(topic, self._clock() + self._timeout_ns)
        if self.sync_every == 1:
            if state.gate is _NO_PUBLISHERS:
                state.gate = AnswerGate()
            state.gate.hold(topic.next_seq, publishers)
            self._start_when_all_came(topic, state)
        elif topic.unsynced >= self.sync_every:
            self._start(topic)
        else:
            self._due_alarm.set_no_later(due_ns)

    def forget(self, topic: Topic) -> None:
        """Forget a deleted topic and stop its alarms."""
        state = self._topics.pop(topic, None)
        self._unsynced.pop(topic, None)
        self._disk_speed.end_stall(topic)
        if state is not None:
            state.alarm.close()
            state.gate.answer_all(lambda _end_seq: None)  # their messages are deleted, as after their OK

    def flush(self, most: int) -> None:
        """Begin to sync up to `most` topics, the longest waiting first."""
        for topic in list(islice(self._unsynced, most)):
            self._start(topic)

    # ---- when a sync begins

    def _start_when_all_came(self, topic: Topic, state: _TopicSync) -> None:
        if state.gate.publisher_count < state.expected:
            state.alarm.set_no_later(self._clock() + _GATHER_NS)
        else:
            self._start(topic)

    # ---- many topics in one sync

    def _start_due(self, now_ns: int) -> None:
        """Begin the syncs of the topics whose time has come, or that of all topics if many wait."""
        are_many = len(self._unsynced) >= _MANY
        for topic, due_ns in list(self._unsynced.items()):
            if due_ns > now_ns:
                self._due_alarm.set_no_later(due_ns)
                return
            if not are_many or not self._can_share(topic, self._topics[topic]):
                self._start(topic)
            elif None in self._running:  # it may have passed this topic by
                self._due_alarm.set(now_ns + SLOW_NS)
                return
            elif not self._is_closed:
                self._running[None] = None
                gevent.spawn(self._run_together)

    def _can_share(self, topic: Topic, state: _TopicSync) -> bool:
        """False if publishers wait, the last sync failed, or one runs."""
        return not (state.gate or state.retry_ns or topic in self._running or topic in self._together)

    def _run_together(self) -> None:
        """Sync all topics that can share a sync. It gives way to other greenlets, since there may be thousands."""
        together = self._together
        try:
            for topic in list(self._unsynced):
                state = self._topics.get(topic)
                if state is not None and topic in self._unsynced and self._can_share(topic, state):
                    together[topic] = ()
                    topic.unsynced = 0
                    del self._unsynced[topic]
                    together[topic] = state.log.syncs.take()
                    if not len(together) % _A_TURN:
                        gevent.sleep(0)
            self._slow_alarm.set_no_later(self._clock() + SLOW_NS)
            self.durations_s.observe(self.services.threadpool.apply(self._sync_together) / 1e9)
        except Exception as bug:  # what is not known to be synced is not
            for unsynced in chain.from_iterable(together.values()):
                unsynced.error = InternalError(bug)
                unsynced.release()
            raise
        finally:
            self._running[None] = None
            self._disk_speed.end_stall(None)
            while together:
                self._end(*together.popitem())
                if not len(together) % _A_TURN:
                    gevent.sleep(0)
            del self._running[None]
            self._run_ended.set()

    def _sync_together(self) -> int:
        """Sync what was taken of all topics; return the duration in ns. Runs in a thread."""
        self._running[None] = self._clock() + _LATE_NS - SLOW_NS
        began_ns = monotonic_ns()
        sync_together([*chain.from_iterable(self._together.values())])
        return monotonic_ns() - began_ns

    def _end(self, topic: Topic, taken: Sequence[Unsynced]) -> None:
        """Note the result of a common sync for one topic, and schedule its next one."""
        state = self._topics.get(topic)
        if state is None:
            return
        sync = _Sync(topic, state, _NO_PUBLISHERS, is_retry=True, taken=taken)
        try:
            error = self._note(sync)
            self.on_sync(topic, error)
            self._set_next(topic, state, error)
        except Exception as bug:  # noqa: BLE001 - it must not stop the other topics
            self._fail(sync, bug)

    # ---- one sync: calls of the event loop, since a greenlet for each took 30 us more

    def _start(self, topic: Topic) -> None:
        """Let a thread sync the files of a topic that wait for that, unless it does so already."""
        state = self._topics.get(topic)
        if state is None or topic in self._running or topic in self._together or self._is_closed:
            return
        self._running[topic] = None
        topic.unsynced = 0  # nothing that was written before is due
        self._unsynced.pop(topic, None)
        state.alarm.set(None)
        sync = _Sync(topic, state, state.gate, is_retry=self._clock() >= state.retry_ns)
        state.gate = _NO_PUBLISHERS  # what is published from now on waits for the next sync
        try:
            sync.taken = state.log.syncs.take(with_failed=sync.is_retry)
            arguments = topic, sync.taken
            self.services.threadpool.begin(self._sync_files, arguments, partial(self._synced, sync))
        except Exception as bug:  # noqa: BLE001
            self._fail(sync, bug)
        else:  # while the thread wakes up
            self._slow_alarm.set_no_later(self._clock() + SLOW_NS)

    def _sync_files(self, topic: Topic, taken: Sequence[Unsynced]) -> int:
        """Sync files, then their directory; return the duration in ns. Runs in a thread."""
        self._running[topic] = self._clock()
        began_ns = monotonic_ns()
        sync_and_release(taken)
        if not self.services.data_path.is_here():
            for unsynced in taken:
                unsynced.is_whole = False
        return monotonic_ns() - began_ns

    def _synced(self, sync: _Sync, job: Job) -> None:
        """Record the result of a sync, answer its publishers, and begin or schedule the next one."""
        topic = sync.topic
        self._running[topic] = None  # what follows may wait for others
        self._disk_speed.end_stall(topic)
        try:
            took_ns = job.end()
            error = self._note(sync)
            if sync.gate:
                self.when_settled(lambda: self._release(sync, error))
            else:
                self._set_next(topic, sync.state, error)
        except Exception as bug:  # noqa: BLE001
            self._fail(sync, bug)
        else:  # after the answers
            self.durations_s.observe(took_ns / 1e9)
            self.on_sync(topic, error)

    def _release(self, sync: _Sync, error: OSError | None) -> None:
        state = sync.state
        answered = sync.gate.publisher_count
        try:
            sync.gate.answer_all(lambda end_seq: error and state.log.syncs.error_of(end_seq - 1))
            self.services.iteration.end()  # sends the answers before the work that they need not wait for
            state.expected = state.gate.publisher_count + answered  # they may publish at once
            self._set_next(sync.topic, state, error)
        except Exception as bug:  # noqa: BLE001
            self._fail(sync, bug)

    def _fail(self, sync: _Sync, bug: Exception) -> None:
        """Report a bug, and refuse the publishers: they must not wait forever or be answered with OK.

        What was taken and is not synced waits for the next sync.
        """
        gevent.get_hub().handle_error(self, type(bug), bug, bug.__traceback__)
        error = InternalError(bug)
        state = sync.state
        state.retry_ns = self._clock() + _FIRST_RETRY_NS
        try:
            give_up(sync.taken, error)
            state.log.note_synced(sync.taken)
        finally:
            sync.gate.answer_all(lambda _end_seq: error)
            self._set_next(sync.topic, state, error)

    def _note(self, sync: _Sync) -> OSError | None:
        """Record the result of a sync; return why some of the log is not on the disk, or None."""
        state = sync.state
        error = state.log.note_synced(sync.taken)
        if error is None and not all(unsynced.is_whole for unsynced in sync.taken):
            files = [unsynced.file for unsynced in sync.taken if unsynced.file is not None]
            error = self.check_synced(sync.topic, state.log, files)
        if error is None:
            state.retry_ns = 0
            state.retry_after_ns = 0
        elif sync.is_retry:
            state.retry_after_ns = min(max(_FIRST_RETRY_NS, 2 * state.retry_after_ns), _LONGEST_RETRY_NS)
            state.retry_ns = self._clock() + state.retry_after_ns
        sync.taken = ()
        return error

    def _set_next(self, topic: Topic, state: _TopicSync, error: OSError | None) -> None:
        """End a sync with this result, and begin or schedule the next one."""
        self._running.pop(topic, None)
        self._run_ended.set()
        if topic not in self._topics:
            return
        if error is not None:
            state.alarm.set_no_later(state.retry_ns)
        if state.gate:
            self._start_when_all_came(topic, state)
        elif error is None and topic.unsynced >= self.sync_every:
            self._start(topic)
        elif topic in self._unsynced:
            self._due_alarm.set_no_later(self._unsynced[topic])

    def _mark_if_slow(self, now_ns: int) -> None:
        """Mark the disk as slow if a sync began long ago."""
        for topic, began_ns in self._running.items():
            if began_ns is None or now_ns < began_ns + SLOW_NS:
                self._slow_alarm.set_no_later((began_ns or now_ns) + SLOW_NS)
            elif topic is None or topic in self._topics:
                self._disk_speed.stall(topic)

    def join(self) -> None:
        """Wait for the running syncs, and those that publishers wait for."""
        for topic, state in list(self._topics.items()):
            if state.gate:
                self._start(topic)
        while self._running:
            self._run_ended.clear()
            self._run_ended.wait()

    def close(self) -> None:
        """Wait for the running syncs, and begin no others: logs are synced and restored when they are closed."""
        self.join()
        self._is_closed = True
