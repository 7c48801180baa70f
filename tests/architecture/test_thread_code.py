"""Each place where a thread begins or gets work is in one table here, with the objects that this work shares with others.

The docstring of the room (its `__init__.py`, or the module) says in its section `Threads` who touches each object, and what
makes that safe. So a thread in a new place, and a new field that a thread uses, fail here until that is written down.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from tests.architecture.sources import ALL_MODULES, tree_of
from tests.support.thread_places import (
    ClassNode,
    Place,
    checked_then_acted_on,
    classes_in,
    fields_of,
    places_in,
)

DISK = "nsqd_py.diskqueue"
FILES = "nsqd_py.diskqueue.files"
JOURNALS = "nsqd_py.diskqueue.journals"
BLOCKING = "nsqd_py.client.blocking"
TO_FILE = "nsq_tools.to_file"
WORKER = "nsq_tools.worker"

FILE = (
    f"{FILES}:LazyFile._fd, _pin_count, _wants_close",
    f"{FILES}:OpenFiles._files, is_full, _is_asked",
    f"{FILES}:OpenFiles.most, _highest, _home, on_crowded",
    f"{FILES}:LogFile.path",
)
READ_FILE = (
    *FILE,
    f"{FILES}:LogFile.end_offset, end_seq, missing_count, newest_ns, salt",
    f"{FILES}:LogFile.index_offsets, _index_counts, _index_newest_ns, _index_seqs",
)
HISTORY = (f"{DISK}:HistoryFile", "nsqd_py.store:BlockCache")
WRITTEN_FILE = (
    *READ_FILE,
    f"{FILES}:LogFile.allocated, was_cut",
    f"{FILES}:LogFile._place",
    f"{FILES}:LogFile.most_ahead, most_bytes, writes_zeros",
    f"{FILES}:LogFile.sync_error, synced_offset, synced_seq, _clean_offset, _allocated_when_closed",
)
LOG = (
    "nsqd_py.runtime.logs:Log",
    "nsqd_py.runtime.logs:LineSink._waiting, _waiting_bytes, lost_count, _is_slow",
)
OBJECTS = ("nsqd_py.objects:CloudObjects", "nsqd_py.objects:DirectoryObjects")
WORKERS = (f"{BLOCKING}:WorkerThread", f"{BLOCKING}:Poller")
CONSUMER = (
    f"{BLOCKING}:Consumer",
    f"{BLOCKING}:ConsumingCore",
    f"{BLOCKING}:NsqdSubscription",
    f"{BLOCKING}:Waiters._locks",
    f"{BLOCKING}:Latch.is_set",
    f"{BLOCKING}:WorkQueue._items, _is_closed",
    f"{BLOCKING}:Poller",
    "nsqd_py.client.consuming:Subscription",
    "nsqd_py.client.consuming:InFlightWindow._fins, has_output",
    "nsqd_py.client.consuming:InFlightWindow._batches, _commands, _taken_fins",
    "nsqd_py.client.message:MessageBatch._open_ids",
)
PRODUCER = (
    f"{BLOCKING}:Producer",
    f"{BLOCKING}:PublishingCore",
    f"{BLOCKING}:Waiters._locks",
    f"{BLOCKING}:Poller",
    "nsqd_py.client.publishing:PendingPublish",
    "nsqd_py.client.publishing:Failures",
    "nsqd_py.client.publishing:Dispatcher",
)
CALLS = (
    "nsqd_py.work:Calls",
    "nsqd_py.work:Counts",
    "nsqd_py.work:Once._of_thread",
    "nsqd_py.work:Pace",
    "nsqd_py.work:TimeLimits._running, _wakes_s, _is_closed",
    *CONSUMER,
    *PRODUCER,
)
# Reasons of work that shares nothing.
VALUES = "it has its own values only"
POOL = "the pool: its work is in other rows"
IN_LOOP = "gevent calls it in the event loop"
WAKES = "it only wakes the main thread"
OTHERS = "its work comes from other rows"
DEFAULTS = "the actions that Python and the system have for a signal"


class Work(NamedTuple):
    """What a place gives to a thread: the objects that it shares, or why there are none."""

    objects: tuple[str, ...] = ()
    why: str = ""


WORK: dict[Place, Work] = {
    # ---- the threads themselves
    Place("nsqd_py.runtime.threads", "DiskThreads._start", "self._work"): Work(
        (
            "nsqd_py.runtime:DiskThreads._ended, _watcher",
            "nsqd_py.runtime:_Thread.mailbox",
            "nsqd_py.runtime:Job",
        )
    ),
    Place("nsqd_py.runtime.threads", "in_thread", "_attempt"): Work(why=OTHERS),
    Place("nsqd_py.runtime.threads", "in_thread_while", "_attempt"): Work(why=OTHERS),
    Place("nsqd_py.runtime.threads", "in_thread_with_progress", "ThreadPool(1)"): Work(why=POOL),
    Place("nsqd_py.runtime.threads", "in_thread_with_progress", "run"): Work(why=OTHERS),
    Place("nsqd_py.server.daemon", "Daemon.__init__", "DiskThreads(_DISK_THREADS)"): Work(why=POOL),
    Place("nsqd_py.server.daemon", "Daemon._check_lock", "os.stat"): Work(why=VALUES),
    Place("nsqd_py.runtime.logs.daemon_log", "LineSink._keep", "self._write_waiting"): Work(LOG),
    Place("nsqd_py.runtime.logs.daemon_log", "LineSink._keep", "self.flush"): Work(LOG),
    # ---- a lease in a bucket
    Place("nsqd_py.lease.bucket", "InThreads.__init__", "ThreadPool(_MOST_THREADS)"): Work(why=POOL),
    Place("nsqd_py.lease.bucket", "InThreads.__call__", "_attempt"): Work(OBJECTS),
    # ---- the store
    Place("nsqd_py.store.image", "read_rounds", "ThreadPoolExecutor(_MOST_REQUESTS)"): Work(why=POOL),
    Place("nsqd_py.store.image", "read_rounds", "_get_or_none"): Work(OBJECTS),
    Place("nsqd_py.store.files", "StoredFiles.offer", "ends"): Work(
        ("nsqd_py.diskqueue.files:LogFile.path",)
    ),
    Place("nsqd_py.store.history", "StoreHistory.__init__", "DiskThreads(_MOST_THREADS)"): Work(why=POOL),
    Place("nsqd_py.store.part", "StorePart._close_head", "owner.close"): Work(
        ("nsqd_py.store:Owner", *OBJECTS)
    ),
    Place("nsqd_py.store.repairing", "StoreCopy._source_of", "read"): Work(OBJECTS),
    Place("nsqd_py.store.repairing", "_StoredCopy.fetch_bytes", "read_range"): Work(OBJECTS),
    Place("nsqd_py.store.restoring.restoration", "Restoration.fetch", "ThreadPoolExecutor(_AT_ONCE)"): Work(
        why=POOL
    ),
    Place("nsqd_py.store.restoring.restoration", "Restoration.fetch", "self._fetch"): Work(OBJECTS),
    Place("nsqd_py.store.scrub", "StoreScrub.start", "DiskThreads(1)"): Work(why=POOL),
    Place("nsqd_py.store.scrub", "StoreScrub._in_thread", "work"): Work(
        ("nsqd_py.store:Requests", "nsqd_py.diskqueue.files:LogFile.path", *OBJECTS)
    ),
    Place("nsqd_py.feed.feed", "Feed._is_damaged", "damage_in"): Work(
        ("nsqd_py.diskqueue.files:LogFile.path",)
    ),
    Place("nsqd_py.store.uploading.local_damage", "LocalDamage._in_file", "damage_in"): Work(
        ("nsqd_py.diskqueue.files:LogFile.path",)
    ),
    Place("nsqd_py.store.uploading.calls", "StoreCalls.call", "work"): Work(
        ("nsqd_py.store:Owner", "nsqd_py.store:Requests", "nsqd_py.diskqueue.files:LogFile.path", *OBJECTS)
    ),
    Place("nsqd_py.store.uploading.stream", "StoreStream._collect", "self._owner.collect"): Work(
        ("nsqd_py.store:Owner", "nsqd_py.store:Requests", *OBJECTS)
    ),
    Place("nsqd_py.store.uploading.stream", "StoreStream._follow_new_feed", "*work"): Work(why=OTHERS),
    # ---- handlers under test
    Place("nsqd_py.work.testing", "_Caller._run_in_new_loop", "ThreadPoolExecutor(1)"): Work(why=POOL),
    Place("nsqd_py.work.testing", "_Caller._run_in_new_loop", "self._run"): Work(
        why="the caller waits for it, and does nothing else in the meantime"
    ),
    # ---- Celery
    Place("nsqd_py.celery.pump", "Pump.add", "self._run"): Work(
        ("nsqd_py.celery:Pump", "nsqd_py.celery:Source.is_cancelled", *CONSUMER)
    ),
    Place("nsqd_py.celery.transport", "Transport._pump", "_drop"): Work(("nsqd_py.celery:Pump",)),
    # ---- logs
    Place("nsqd_py.broker.disk.slow_disk", "in_timed_thread", "run"): Work((f"{DISK}:CallTimer",)),
    Place("nsqd_py.broker.disk.slow_disk", "SlowWriter._write_in_thread", "appending.write"): Work(
        (f"{DISK}:Appending", f"{DISK}:CallTimer", *WRITTEN_FILE)
    ),
    Place("nsqd_py.broker.disk.slow_disk", "SlowReader._read_in_thread", "read"): Work(READ_FILE),
    # ---- stored files
    Place("nsqd_py.broker.broker", "Broker._read_history", "in_thread_while(store.threadpool, check)"): Work(
        why=OTHERS
    ),
    Place("nsqd_py.broker.disk.stored_reader", "StoredReader._read_in_thread", "read_stored_piece"): Work(
        HISTORY
    ),
    Place(
        "nsqd_py.diskqueue.history",
        "LogHistory.read_now",
        "self.in_thread(partial(read_stored_piece, file, seq, most_bytes))",
    ): Work(HISTORY),
    Place(
        "nsqd_py.diskqueue.history",
        "LogHistory._first",
        "self.in_thread(partial(first_in, self.file_of(segment)))",
    ): Work(HISTORY),
    Place(
        "nsqd_py.broker.peek",
        "Peek.fill",
        "self._topic.log.history.in_thread(self._read, on_ended=stack.pop_all().close)",
    ): Work(("nsqd_py.broker:Peek.rows, ids, unreadable_count, _plan", *HISTORY, *READ_FILE)),
    Place("nsqd_py.broker.disk.sync", "GroupSync._start", "self._sync_files"): Work(
        (
            "nsqd_py.broker.disk:GroupSync._running",
            "nsqd_py.broker:DataPath._loaded",
            f"{DISK}:Unsynced",
            *WRITTEN_FILE,
        )
    ),
    Place("nsqd_py.broker.disk.sync", "GroupSync._run_together", "self._sync_together"): Work(
        (
            "nsqd_py.broker.disk:GroupSync._running",
            "nsqd_py.broker.disk:GroupSync._together",
            f"{DISK}:Unsynced",
            *WRITTEN_FILE,
        )
    ),
    Place("nsqd_py.broker.upkeep.removed_files", "RemovedFiles._restore", "file.write_back"): Work(
        ("nsqd_py.broker.upkeep:RemovedFiles", *WRITTEN_FILE)
    ),
    Place("nsqd_py.broker.upkeep.removed_files", "RemovedFiles._check_slow", "_removed_of"): Work(
        ("nsqd_py.broker.upkeep:RemovedFiles._check_slow", *READ_FILE)
    ),
    Place("nsqd_py.broker.upkeep.small_files", "SmallFiles._check", "self._look"): Work(
        (
            "nsqd_py.broker.upkeep:SmallFiles._contents",
            "nsqd_py.broker.upkeep:_Look",
            "nsqd_py.broker:DataPath._loaded",
        )
    ),
    Place("nsqd_py.broker.upkeep.housekeeping", "Housekeeper._move", "compaction.step"): Work(
        (f"{DISK}:Compaction", *WRITTEN_FILE)
    ),
    Place("nsqd_py.broker.upkeep.housekeeping", "Housekeeper._finish", "finish"): Work(FILE),
    Place("nsqd_py.broker.upkeep.housekeeping", "Housekeeper._finish", "sync_directory"): Work(why=VALUES),
    Place("nsqd_py.broker.upkeep.housekeeping", "Housekeeper._remove_in_thread", "file.discard"): Work(
        ("nsqd_py.broker.upkeep:Housekeeper._remove_in_thread", *FILE)
    ),
    Place("nsqd_py.broker.upkeep.housekeeping", "Housekeeper._remove_in_thread", "finish"): Work(
        ("nsqd_py.broker.upkeep:Housekeeper._remove_in_thread", *FILE)
    ),
    Place("nsqd_py.broker.disk.logs", "LogMaker._try_in_thread", "work"): Work(
        ("nsqd_py.broker.disk:LogMaker", *FILE)
    ),
    Place("nsqd_py.diskqueue.log", "TopicLog._drop", "file.discard()"): Work(FILE),
    Place("nsqd_py.diskqueue.log", "TopicLog._set_aside_unused", "file.discard()"): Work(FILE),
    Place("nsqd_py.diskqueue.log", "TopicLog.remove", "file.discard()"): Work(FILE),
    Place("nsqd_py.diskqueue.log", "TopicLog.free_spare", "partial(gone.unlink, missing_ok=True)"): Work(
        why=VALUES
    ),
    Place("nsqd_py.broker.lifetime.shutdown", "_close_topics", "_sync"): Work(
        (
            "nsqd_py.broker.lifetime:_Closing",
            f"{DISK}:TopicLog.files, directory",
            f"{DISK}:Unsynced",
            f"{JOURNALS}:Journal",
            *WRITTEN_FILE,
        )
    ),
    Place(
        "nsqd_py.diskqueue.reading",
        "read_retained_piece",
        "in_thread(partial(read_piece, file, seq, read_by(descriptor), RETAINED_PIECE_BYTES))",
    ): Work(READ_FILE),
    Place("nsqd_py.api.log_handlers", "read_topic", "in_thread(request.app.services.threadpool)"): Work(
        why=OTHERS
    ),
    Place("nsqd_py.broker.peek", "Peek.fill", "self._read"): Work(
        ("nsqd_py.broker:Peek.rows, ids, unreadable_count, _plan", *READ_FILE)
    ),
    Place("nsqd_py.broker.seek", "_find_deferred", "_deferred_in"): Work(why=VALUES),
    # ---- damage
    Place("nsqd_py.broker.upkeep.scrub", "Scrub._check", "turn.run"): Work(("nsqd_py.broker.upkeep:_Turn",)),
    Place("nsqd_py.broker.upkeep.scrub", "Scrub._confirmed", "again.run"): Work(
        ("nsqd_py.broker.upkeep:_Turn",)
    ),
    Place("nsqd_py.broker.upkeep.mending", "LogFiles._damage_in", "damage_in"): Work(why=VALUES),
    Place("nsqd_py.broker.upkeep.mending", "LogFiles._bring_back", "numbers_in"): Work(why=VALUES),
    Place("nsqd_py.broker.upkeep.mending", "LogFiles._repair_bytes", "_sync"): Work(why=VALUES),
    Place("nsqd_py.broker.upkeep.mending", "LogFiles._write_again", "file.salvage"): Work(
        ("nsqd_py.broker.upkeep:LogFiles", *READ_FILE)
    ),
    Place("nsqd_py.broker.upkeep.mending", "LogFiles._write_again", "os.fsync"): Work(why=VALUES),
    Place("nsqd_py.broker.upkeep.mending", "LogFiles._write_again", "sync_directory"): Work(why=VALUES),
    Place("nsqd_py.standby.repairs.repair", "RepairedFile.opened", "os.fsync"): Work(
        ("nsqd_py.standby.repairs:RepairedFile._descriptor",)
    ),
    Place("nsqd_py.standby.repairs.repair", "RepairedFile.opened", "self._open"): Work(
        ("nsqd_py.standby.repairs:RepairedFile._descriptor",)
    ),
    Place("nsqd_py.standby.repairs.repair", "RepairedFile.opened", "self._write"): Work(
        ("nsqd_py.standby.repairs:RepairedFile._descriptor",)
    ),
    Place("nsqd_py.standby.copies.upkeep", "Upkeep._check_suspects", "damage_in"): Work(why=VALUES),
    Place("nsqd_py.standby.copies.upkeep", "Upkeep.check", "changed_files"): Work(why=VALUES),
    # ---- journals and small files
    Place("nsqd_py.broker.disk.journal_writer", "JournalWriter._write_in_thread", "*writes"): Work(
        (
            "nsqd_py.broker.disk:JournalWriter",
            "nsqd_py.queue:JournalChange",
            f"{JOURNALS}:Journal",
            f"{JOURNALS}:LargeSnapshot",
        )
    ),
    Place(
        "nsqd_py.broker.disk.journal_writer", "JournalWriter._snapshot_in_thread", "large_snapshot.write"
    ): Work(("nsqd_py.broker.disk:JournalWriter", f"{JOURNALS}:LargeSnapshot")),
    Place("nsqd_py.broker.broker", "Broker._make_channel", "write"): Work((f"{JOURNALS}:Journal",)),
    Place("nsqd_py.broker.seek", "seek_channel", "channel.journal.sync"): Work((f"{JOURNALS}:Journal",)),
    Place("nsqd_py.broker.seek", "seek_channel", "sync_directory"): Work(why=VALUES),
    Place("nsqd_py.broker.metadata", "MetadataWriter.persist", "self._replace"): Work(
        ("nsqd_py.broker:MetadataWriter", f"{JOURNALS}:Journal")
    ),
    Place("nsqd_py.broker.clock_file", "ClockKeeper._check", "self._replace"): Work(
        ("nsqd_py.broker:ClockKeeper", *LOG)
    ),
    # ---- standbys
    Place("nsqd_py.standby.follower", "Follower._run", "self._copy.read"): Work(
        ("nsqd_py.standby.copies:Copy", *WRITTEN_FILE)
    ),
    Place("nsqd_py.standby.follower", "Follower._sync", "sync_paths"): Work(("nsqd_py.standby.copies:Copy",)),
    Place("nsqd_py.feed.feed", "Feed._read", "os.pread"): Work(("nsqd_py.feed:Feed", *FILE)),
    Place("nsqd_py.standby.repairs.give_back", "StandbyMemory._note", "self._write"): Work(
        ("nsqd_py.standby.repairs:StandbyMemory",)
    ),
    Place("nsqd_py.standby.repairs.fetch_server", "FetchServer._answer", "work"): Work(READ_FILE),
    Place("nsqd_py.broker.upkeep.descriptors", "DescriptorRelief.watch", "OPEN_FILES.make_room"): Work(
        (f"{FILES}:OpenFiles._files, is_full, _is_asked",)
    ),
    # ---- HTTP, statistics, debugging
    Place("nsqd_py.net.http.guard", "_thread", "ThreadPool(1)"): Work(why=POOL),
    Place("nsqd_py.net.http.guard", "Guard._check_password", "_is_right"): Work(why=VALUES),
    Place("nsqd_py.net.http.debug", "_Freeing.free", "gevent.get_hub().threadpool"): Work(why=POOL),
    Place("nsqd_py.debug.memory", "free_memory", "_trim"): Work(why=VALUES),
    Place("nsqd_py.debug.memory", "Pauses.watch", "self._on_phase"): Work(
        ("nsqd_py.debug:Pauses.total_ns, last_ns, _started_ns",)
    ),
    Place("nsqd_py.debug.stacks", "Profiler.profile", "self._on_signal"): Work(
        ("nsqd_py.debug:Profiler._counts",)
    ),
    Place("nsqd_py.api.handlers", "metrics", "gevent.get_hub().threadpool"): Work(why=POOL),
    Place("nsqd_py.api.handlers", "metrics", "import_module"): Work(why="imports have locks"),
    Place("nsqd_py.stats.prometheus", "Exposition.pieces", "gevent.get_hub().threadpool"): Work(why=POOL),
    Place("nsqd_py.stats.prometheus", "Exposition.pieces", "_of_process"): Work(why=VALUES),
    Place("nsqd_py.runtime.command", "with_streams", "gc.freeze"): Work(why="the main thread, at its end"),
    Place("nsqd_py.diskqueue.memory_budget", "CountedBatch.__del__", "__del__"): Work(
        (
            "nsqd_py.diskqueue.memory_budget:CountedBatch",
            "nsqd_py.diskqueue.memory_budget:MemoryAccount.memory_bytes",
            "nsqd_py.diskqueue.memory_budget:MemoryBudget.ephemeral_bytes, _accounts",
        )
    ),
    # ---- signals
    Place("nsqd_py.server.daemon", "Daemon._listen_to_signals", "self.broker.begin_drain"): Work(why=IN_LOOP),
    Place("nsqd_py.server.daemon", "Daemon._listen_to_signals", "self._reload"): Work(why=IN_LOOP),
    Place("nsqd_py.runtime.process", "StopSignals.__enter__", "self._on_signal"): Work(why=IN_LOOP),
    Place("nsqd_py.runtime.command", "_replace_interrupt", "new"): Work(why=DEFAULTS),
    Place("nsqd_py.runtime.process", "serving", "reload"): Work(why=IN_LOOP),
    Place("nsq_tools.stat.screen.live", "LiveTable.run", "act"): Work(why=IN_LOOP),
    Place("nsq_tools.stat.reports", "run", "signals.stop"): Work(why=IN_LOOP),
    Place("nsq_tools.to_file.service", "Service.run", "self._reopen"): Work(why=IN_LOOP),
    Place("nsq_spark.replay.output.terminal", "Stopping.__enter__", "self._on_signal"): Work(
        ("nsq_spark.replay.output:Stopping.asked",)
    ),
    Place("nsq_spark.replay.output.terminal", "Stopping.begin_work", "self._on_signal"): Work(
        ("nsq_spark.replay.output:Stopping.asked",)
    ),
    # ---- the import of Go's files
    Place("nsqd_py.go_import.take_over", "sync_files", "ThreadPoolExecutor(_SYNCS_AT_ONCE)"): Work(why=POOL),
    Place("nsqd_py.go_import.take_over", "sync_files", "_sync_file"): Work(why=VALUES),
    # ---- clients
    Place(f"{BLOCKING}.backend", "Backend.spawn", "_start_thread"): Work(why=OTHERS),
    Place(f"{BLOCKING}.backend", "_start_thread", "call"): Work(why=OTHERS),
    Place(f"{BLOCKING}.backend", "WorkerThread.__init__", "self._run"): Work(WORKERS),
    Place(
        f"{BLOCKING}.lookup",
        "Finder.__init__",
        "WorkerThread[tuple[str, ...]](context.backend, context.poller)",
    ): Work((f"{BLOCKING}:Finder", *WORKERS)),
    Place(f"{BLOCKING}.nsqd_subscription", "NsqdSubscription.keep_connected", "call"): Work(
        (f"{BLOCKING}:Connection", *WORKERS)
    ),
    Place(f"{BLOCKING}.publishing_core", "PublishingCore._connect", "call"): Work(
        (f"{BLOCKING}:Connection", *WORKERS)
    ),
    Place(f"{BLOCKING}.producer", "Producer._start", "self._run"): Work(PRODUCER),
    Place(f"{BLOCKING}.consumer", "Consumer.start", "self._do_io"): Work(CONSUMER),
    Place("nsqd_py.client.aio.handler_threads", "HandlerThreads.run", "_work"): Work(
        ("nsqd_py.client.aio:HandlerThreads",)
    ),
    # ---- handlers of apps
    Place("nsqd_py.work.app", "App.run", "stop"): Work(("nsqd_py.work:Running._stop_by_s", *CONSUMER)),
    Place("nsqd_py.work.app", "App.publish_async", "self._publish"): Work(("nsqd_py.work:App", *PRODUCER)),
    Place("nsqd_py.work.batches", "Collector.start", "self._work"): Work(("nsqd_py.work:Collector", *CALLS)),
    Place("nsqd_py.work.pacing", "TimeLimits.start", "self._watch"): Work(CALLS),
    Place("nsqd_py.work.running", "EventLoop.__init__", "self._run"): Work(why=OTHERS),
    Place("nsqd_py.work.running", "EventLoop.submit", "_error_of(coroutine)"): Work(CALLS),
    Place("nsqd_py.work.running", "EventLoop.close", "self._loop.stop"): Work(why=VALUES),
    Place("nsqd_py.work.timed.jobs", "Jobs.run_async", "function"): Work(
        why="it is a function of the program"
    ),
    Place("nsqd_py.work.timed.scheduler", "Scheduler.start", "self._run"): Work(
        ("nsqd_py.work.timed:Scheduler", *CONSUMER, *PRODUCER)
    ),
    Place(f"{BLOCKING}.consumer", "Consumer._start_handlers", "self._work"): Work(CONSUMER),
    Place("nsqd_py.client.aio.consumer", "Consumer._call_soon", "call"): Work(
        ("nsqd_py.client.aio:Consumer", "nsqd_py.client.aio:TaskQueue._items")
    ),
    Place("nsqd_py.client.aio.consumer", "Consumer._give_up", "ending"): Work(
        ("nsqd_py.client.aio:Consumer", "nsqd_py.client.aio:TaskQueue._items")
    ),
    Place("nsqd_py.client.aio.consumer", "MessageLoop.__del__", "__del__"): Work(
        ("nsqd_py.client.aio:Consumer", "nsqd_py.client.aio:TaskQueue._items")
    ),
    Place("nsqd_py.client.aio.handler_threads", "_report", "_set"): Work(
        ("nsqd_py.client.aio:HandlerThreads",)
    ),
    Place("nsqd_py.client.aio.producer", "Producer.close", "self._core.close"): Work(PRODUCER),
    Place("nsqd_py.client.process", "<module>", "_at_exit"): Work(
        ("nsqd_py.client.process:_Registry._refs, _most",)
    ),
    Place("nsqd_py.client.process", "<module>", "os.register_at_fork(after_in_child=_after_fork)"): Work(
        ("nsqd_py.client.process:_Registry._refs, _most",)
    ),
    Place("nsqd_py.testing.child", "main", "_stop_with_parent"): Work(why=VALUES),
    Place("nsqd_py.testing.embedded", "EmbeddedDaemon.__init__", "_end"): Work(
        ("nsqd_py.testing:EmbeddedDaemon._processes, _folder",)
    ),
    # ---- nsqadmin
    Place("nsqadmin_py.history.file", "HistoryFile.__init__", "ThreadPool(1)"): Work(why=POOL),
    Place(
        "nsqadmin_py.history.file", "HistoryFile._replace", "lambda data: replace_file(path, pack(data))"
    ): Work(why=VALUES),
    Place(
        "nsqadmin_py.messages.log_search",
        "LogSearch.run",
        "source.in_thread(partial(self._search, source.read(query)))",
    ): Work(("nsqadmin_py.messages:LogSearch",)),
    Place("nsqadmin_py.web.message_queries", "MessageQueries._source", "gevent.get_hub().threadpool"): Work(
        why=POOL
    ),
    Place(
        "nsqadmin_py.web.message_queries", "MessageQueries._source", "in_thread(gevent.get_hub().threadpool)"
    ): Work(why=OTHERS),
    Place("nsqadmin_py.web.message_queries", "_matching", "gevent.get_hub().threadpool"): Work(why=POOL),
    Place("nsqadmin_py.web.message_queries", "_matching", "match"): Work(why=VALUES),
    # ---- tools
    Place("nsq_tools.tail.output", "Output.__init__", "DiskThreads(1)"): Work(why=POOL),
    Place("nsq_tools.tail.output", "Output.write", "_write_all"): Work(
        ("nsq_tools.tail:Output._descriptor",)
    ),
    Place("nsq_tools.to_file.service", "Service.__init__", "gevent.get_hub().threadpool"): Work(why=POOL),
    Place("nsq_tools.to_file.service", "Service._check_directories", "self._check_destinations"): Work(
        why=VALUES
    ),
    Place("nsq_tools.to_file.service", "Service.run", "self._repair"): Work(
        (f"{TO_FILE}:Claim", f"{TO_FILE}:FinishedFile", *LOG)
    ),
    Place("nsq_tools.to_file.topic_writer", "TopicWriter._store", "self._archive.work"): Work(
        (f"{TO_FILE}:Archive", f"{TO_FILE}:Claim", f"{TO_FILE}:Service._warned", *LOG)
    ),
    Place("nsq_tools.to_file.topic_writer", "Finisher._run", "self._finish"): Work(
        (f"{TO_FILE}:FinishedFile", *LOG)
    ),
    Place("nsq_tools.worker.commands", "_supervise", "_watch"): Work(
        (f"{WORKER}:Supervisor._changes, _wake",)
    ),
    Place("nsq_tools.worker.health", "HealthServer.start", "self._server.serve_forever"): Work(
        (f"{WORKER}:Supervisor.board",)
    ),
    Place("nsq_tools.worker.supervisor", "Supervisor._handlers", "self._on_signal"): Work(
        (f"{WORKER}:Supervisor._signals",)
    ),
    Place("nsq_tools.worker.supervisor", "Supervisor._handlers", "lambda *_: None"): Work(why=WAKES),
    Place("nsq_tools.worker.supervisor", "Supervisor._handlers", "self._wake.fileno()"): Work(why=WAKES),
    Place("nsq_tools.worker.supervisor", "Supervisor._handlers", "-1"): Work(why=WAKES),
    Place("nsq_tools.worker.child", "serve", "on_signal"): Work((f"{WORKER}:Durations",)),
    Place("nsq_tools.worker.child", "_leave_in_time", "os._exit"): Work(why=VALUES),
    # ---- Spark
    Place("nsq_spark.archive.listing", "_survey_files", "ThreadPoolExecutor(_REMOTE_READERS)"): Work(
        why=POOL
    ),
    Place("nsq_spark.archive.listing", "_survey_files", "recogniser.info"): Work(
        (
            "nsq_spark.archive:_Recogniser.topics, knows_topics",
            "nsq_spark.archive:Companions._last_numbers",
            "nsq_spark.archive:Manifests._read, sizes_bytes",
        )
    ),
    Place("nsq_spark.compact.alone", "alone_in", "renew"): Work(("nsq_spark.compact:Mark",)),
    Place("nsq_spark.replay.driver", "Replay._action", "act"): Work(("nsq_spark.replay:Replay",)),
    Place("nsq_spark.replay.driver", "_Joined", "the library"): Work(("nsq_spark.replay:_Joined",)),
}

# Methods that threads run. They may use fields that are set once, and those that a line of the room is about; a line about a
# class as a whole hands over all of its fields.
METHODS: dict[str, tuple[str, ...]] = {
    "nsqd_py.runtime.threads:Job": ("run",),
    "nsqd_py.runtime.threads:DiskThreads": ("_work",),
    "nsqd_py.runtime.logs.daemon_log:LineSink": (
        "write",
        "take_lost",
        "_keep",
        "flush",
        "_write_now",
        "_write_all",
        "_write_waiting",
    ),
    f"{DISK}.syncing:CallTimer": ("__enter__", "__exit__"),
    f"{DISK}.syncing:Appending": ("step", "write", "_make_steps"),
    f"{FILES}.open_files:LazyFile": ("is_open", "fileno", "duplicate", "pin", "unpin", "close"),
    f"{FILES}.open_files:OpenFiles": ("add", "forget", "reopen", "with_room", "make_room"),
    f"{FILES}.log_file:LogFile": (
        *(
            "put",
            "wants_space",
            "allocate",
            "cut",
            "is_cut",
            "is_surely_whole",
            "_read_place",
            "_least_bytes",
            "reopen_with",
        ),
        *("read", "offset_before", "twin", "same_as", "write_back", "write_header", "salvage", "discard"),
    ),
    "nsqd_py.broker.upkeep.scrub:_Turn": ("run", "_check_header"),
    f"{DISK}.log:TopicLog": ("sync_to_end",),
    f"{JOURNALS}.journal:Journal": ("append", "change", "snapshot", "replace", "note_replaced", "sync"),
    f"{JOURNALS}.journal:LargeSnapshot": ("write",),
    f"{DISK}.compaction:Compaction": ("step", "_begin", "_sync"),
    "nsqd_py.broker.disk.sync:GroupSync": ("_sync_files", "_sync_together"),
    "nsqd_py.broker.data_path:DataPath": ("is_here",),
    "nsqd_py.broker.upkeep.small_files:SmallFiles": ("_look", "_keep"),
    "nsqd_py.broker.peek:Peek": ("_read",),
    "nsqd_py.broker.metadata:MetadataWriter": ("_replace",),
    "nsqd_py.broker.clock_file:ClockKeeper": ("_replace",),
    "nsqd_py.broker.lifetime.shutdown:_Closing": ("sync",),
    "nsqd_py.queue.journaled_position:JournalChange": ("write",),
    "nsqd_py.standby.repairs.repair:RepairedFile": ("_open", "_write"),
    "nsqd_py.standby.repairs.fetch_server:FetchServer": (
        *("_log", "_logs", "_versions", "_open", "_open_version", "_end", "_bytes"),
    ),
    "nsqd_py.standby.copies.copy:Copy": ("read", "_read_epochs", "_note_journal"),
    "nsqd_py.debug.memory:Pauses": ("_on_phase",),
    "nsqd_py.debug.stacks:Profiler": ("_on_signal",),
    "nsqd_py.client.message:MessageBatch": (
        "finish_if_open",
        "_finished_one",
        "_take_all",
        "_take",
        "_taken",
        "_open_set",
    ),
    "nsqd_py.client.consuming.subscription:InFlightWindow": ("finish_one", "_announce", "take_output"),
    f"{BLOCKING}.backend:Poller": ("wake", "close"),
    f"{BLOCKING}.backend:WorkerThread": ("_run", "_end", "kill", "result"),
    f"{BLOCKING}.backend:Waiters": ("wait", "wait_until", "wake", "wake_all"),
    f"{BLOCKING}.backend:Latch": ("set", "wait"),
    f"{BLOCKING}.backend:WorkQueue": ("put_all", "wait_until_empty", "clear", "close", "take", "_wait"),
    f"{BLOCKING}.producer:Producer": (
        "_publish_soon",
        "_wake_io",
        "_take_in",
        "_refuse_overdue",
        "_refuse_left",
        "_empty_inbox",
    ),
    f"{BLOCKING}.consumer:Consumer": ("_give_back", "begin_to_stop"),
    f"{BLOCKING}.consuming_core:ConsumingCore": ("_on_output", "_leave", "begin_to_stop"),
    "nsqd_py.client.aio.consumer:TaskQueue": ("clear", "_next"),
    "nsqd_py.client.process:_Registry": ("__iter__", "add", "discard"),
    "nsqadmin_py.messages.log_search:LogSearch": ("_search", "_take", "_pass", "_keep"),
    f"{TO_FILE}.archive:Archive": (
        "work",
        "store",
        "tick",
        "close",
        "_write_some",
        "_take",
        "_sync",
        "_take_back",
    ),
    f"{TO_FILE}.service:Service": ("_warn_once",),
    "nsq_spark.archive.listing:_Recogniser": (
        "info",
        "topics_of",
        "_hinted_topic",
        "_parts",
        "_in_doubt",
        "_with_times",
    ),
}
# Fields that a method of a thread tests and then removes from: why no other thread can be in between.
CHECKED_FIRST = {
    "nsqd_py.client.process:_Registry.add _refs": "what another thread removed in between is None, and what it added is put back",
    f"{BLOCKING}.backend:Waiters.wait _locks": "a lock that another thread took in between is a ValueError, which is handled",
    f"{BLOCKING}.backend:WorkQueue.clear _items": "an item that a worker took in between is an IndexError, which is handled",
    f"{BLOCKING}.producer:Producer._refuse_overdue _inbox": "only the I/O thread removes publishes while it runs",
    f"{TO_FILE}.archive:Archive._take waiting": "one thread at a time has the archive",
}

_LINE = re.compile(r"([A-Za-z_]\w*(?:\.\w+(?:, \w+)*)?)  +(\S.*)")


def test_every_place_is_in_the_table() -> None:
    found = {place for module in ALL_MODULES for place in places_in(module, tree_of(module))}
    assert sorted(found - WORK.keys()) == [], (
        "say in WORK what it shares, and in the docstring of the room why that is safe"
    )
    assert sorted(WORK.keys() - found) == [], "these are there no more"


def test_work_that_shares_nothing_says_so() -> None:
    assert [place for place, work in WORK.items() if bool(work.objects) == bool(work.why)] == []


def test_every_shared_object_is_in_the_docstring_of_its_room() -> None:
    shared = {one for work in WORK.values() for one in work.objects}
    written = {f"{room}:{name}" for room in rooms() for name in lines_of(room)}
    assert sorted(shared - written) == []
    assert sorted(written - shared) == [], "no row of WORK names these"


def test_the_docstrings_name_what_exists() -> None:
    missing = []
    for room in rooms():
        for name in lines_of(room):
            class_name, _, fields = name.partition(".")
            known = names_of(room, class_name)
            missing += [
                f"{room}:{class_name}.{field}" for field in fields.split(", ") if field and field not in known
            ]
            missing += [f"{room}:{class_name}"] if not known else []
    assert missing == []


@pytest.mark.parametrize("owner", METHODS)
def test_methods_of_threads_use_only_what_is_written_down(owner: str) -> None:
    module, class_name = owner.split(":")
    found = classes_of(module)[class_name]
    room = next(room for room in (module, module.rpartition(".")[0]) if room in rooms())
    missing = {method: unwritten(room, found, method) for method in METHODS[owner]}
    assert {method: fields for method, fields in missing.items() if fields} == {}


@pytest.mark.parametrize("owner", METHODS)
def test_methods_of_threads_do_not_check_and_then_act(owner: str) -> None:
    module, class_name = owner.split(":")
    methods = classes_of(module)[class_name].methods
    found = {
        f"{owner}.{method} {field}"
        for method in METHODS[owner]
        for field in checked_then_acted_on(methods[method])
    }
    expected = {each for each in CHECKED_FIRST if each.startswith(f"{owner}.")}
    assert found == expected


def test_the_reasons_are_about_methods_of_threads() -> None:
    methods = {f"{owner}.{method}" for owner, methods in METHODS.items() for method in methods}
    assert [each for each in CHECKED_FIRST if each.partition(" ")[0] not in methods] == []


# ---- the test itself: it sees what is new

PLANTED = """
class Saver:
    def save(self):
        in_thread(self._pool, self._write, self._rows)
        gevent.spawn(in_thread, self._pool, self._write)
        self._services.threadpool.begin(self._look, (), self._seen)
        Thread(target=self._watch).start()
        threading.Timer(1.0, self._late).start()
        _thread.start_new_thread(self._run, ())
        loop.run_in_executor(None, self._slow)
        executor.submit(self._other)
        signal.signal(signal.SIGHUP, self._on_hup)
        weakref.finalize(self, self._end)
        weakref.ref(self, self._gone)

    def __del__(self):
        self._count -= 1
"""


def test_planted_threads_are_found() -> None:
    found = {(place.function, place.call) for place in places_in("planted", ast.parse(PLANTED))}
    assert found == {
        ("Saver.save", "self._write"),
        ("Saver.save", "self._look"),
        ("Saver.save", "self._watch"),
        ("Saver.save", "self._late"),
        ("Saver.save", "self._run"),
        ("Saver.save", "self._slow"),
        ("Saver.save", "self._other"),
        ("Saver.save", "self._on_hup"),
        ("Saver.save", "self._end"),
        ("Saver.save", "self._gone"),
        ("Saver.__del__", "__del__"),
    }
    assert not {Place("planted", *each) for each in found} & WORK.keys()


RACE = """
class Threads:
    def take(self):
        while self._idle and self._jobs:
            self._idle.popleft().give(self._jobs.popleft())
        if self._by_name:
            del self._by_name[0]
        if self._left:
            self._right.pop()
"""


def test_a_planted_race_is_found() -> None:
    """As the one that lost acknowledged messages: another thread takes the last job between the test and `popleft`."""
    assert checked_then_acted_on(classes_in(ast.parse(RACE))["Threads"].methods["take"]) == {
        "_idle",
        "_jobs",
        "_by_name",
    }


def test_a_field_that_is_not_written_down_is_found() -> None:
    planted = classes_in(ast.parse(RACE))["Threads"]
    assert unwritten("nsqd_py.runtime", planted, "take") == ["_by_name", "_idle", "_jobs", "_right"]


# ---- rooms and their classes


@cache
def rooms() -> tuple[str, ...]:
    """The rooms and modules whose docstrings have a section `Threads`."""
    return tuple(module for module in ALL_MODULES if "\nThreads\n" in _docstring(module))


@cache
def _docstring(module: str) -> str:
    return ast.get_docstring(tree_of(module)) or ""


@cache
def lines_of(room: str) -> dict[str, str]:
    """Return the objects of the section, as `Class` or `Class.field, field`, and what makes them safe."""
    section = _docstring(room).partition("\nThreads\n")[2].partition("\n\n")[0]
    entries: list[str] = []
    for line in section.splitlines():
        if line.startswith("    "):
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line)
    matches = [_LINE.fullmatch(entry) for entry in entries]
    assert entries and all(matches), f"{room}: {entries}"
    return {match[1]: match[2] for match in matches if match}


@cache
def classes_of(module: str) -> dict[str, ClassNode]:
    return classes_in(tree_of(module))


def _classes_in_room(room: str) -> dict[str, ClassNode]:
    modules = [module for module in ALL_MODULES if module == room or module.rpartition(".")[0] == room]
    return {name: found for module in modules for name, found in classes_of(module).items()}


def _with_bases(room: str, found: ClassNode) -> Iterator[ClassNode]:
    yield found
    for base in found.node.bases:
        name = ast.unparse(base).partition("[")[0]
        if name in _classes_in_room(room):
            yield from _with_bases(room, _classes_in_room(room)[name])


def names_of(room: str, class_name: str) -> set[str]:
    found = _classes_in_room(room).get(class_name)
    return {name for each in _with_bases(room, found) for name in each.names} if found is not None else set()


def unwritten(room: str, found: ClassNode, method: str) -> list[str]:
    """Return the fields that a method uses, which change after the object was made, and of which no line of the room is."""
    bases = list(_with_bases(room, found))
    written = {
        f"{name.partition('.')[0]}.{field}"
        for name in lines_of(room)
        for field in name.partition(".")[2].split(", ")
    }
    if any(each.node.name in lines_of(room) for each in bases):
        return []
    used = fields_of(found.methods[method]) - {name for each in bases for name in each.methods}
    changing = {field for each in bases for field in each.fields_that_change}
    return sorted(
        field
        for field in used & changing
        if not any(f"{each.node.name}.{field}" in written for each in bases)
    )
