"""One topic: its consumer and its archive. Messages are finished after they are synced.

Blocking calls run in a thread, one at a time; messages that arrive in the meantime wait for the next call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from time import monotonic, time_ns
from typing import Any

import gevent
from gevent.event import Event

from nsq_tools.clients import make_consumer
from nsq_tools.to_file.archive import Archive, Plan, taken
from nsq_tools.to_file.finishing import FinishedFile
from nsq_tools.to_file.formats import Warn
from nsq_tools.to_file.options import ToFileOptions
from nsqd_py.client.message import AlreadyAnswered, MessageBatch
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import in_thread
from nsqd_py.settings.durations import SECOND_NS

_RETRY_S = (0.5, 1.0, 2.0, 5.0)
# For compressed and framed files, which collect messages: the size that is written before the next sync is due.
_GATHERED_BYTES = 1024 * 1024
_STOP_TIMEOUT_S = 30.0


def describe(error: Exception) -> str:
    """Return the error as text, with the file if it has one."""
    if not isinstance(error, OSError):
        return repr(error)
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text


class TopicWriter:
    """Writes the batches of one topic, and finishes their messages after the sync.

    has_failed  True if messages or files were left unfinished at the end
    on_bug      called when a bug ends the writing
    """

    def __init__(
        self,
        plan: Plan,
        options: ToFileOptions,
        threadpool: Any,
        warn: Warn,
        log: Log,
        on_bug: Callable[[], object],
    ) -> None:
        self.has_failed = False
        self._on_bug = on_bug
        self._name = f"{plan.topic}/{plan.channel}"
        self._archive = Archive(plan, log, warn, time_ns)
        self._size_of = plan.form.size_of
        # A file that ends before the next sync must have what has arrived until then.
        rotates_first = 0 < options.rotate_interval_ns < options.sync_interval_ns
        self._gathers = not (plan.form.is_appendable and plan.codec.is_plain) and not rotates_first
        self._max_in_flight = options.max_in_flight
        self._sync_interval_s = options.sync_interval_ns / SECOND_NS
        self._threadpool = threadpool
        self._log = log
        timeout = f"{options.http_client_request_timeout_ns}ns"
        self._consumer = make_consumer(
            options,
            "nsq_to_file",
            plan.topic,
            log,
            {"lookupd_poll_timeout": timeout},
            batch_handler=self._on_batch,
        )
        self._arrived: list[MessageBatch] = []
        self._arrived_bytes = 0
        self._unfinished = 0
        self._wake = Event()
        self._tick_due_s = monotonic() + self._sync_interval_s
        self._failures = 0
        self._is_reopening = False
        self._is_stopping = False
        self._is_drained = False
        self._finisher = Finisher(self._name, threadpool, log)
        self._greenlets: list[Any] = []

    # --- control

    def start(self) -> None:
        self._greenlets.append(gevent.spawn(self._run))
        self._consumer.start()

    def reopen(self) -> None:
        """Sync and end the current file. The next message begins a new one."""
        self._is_reopening = True
        self._wake.set()

    def stop(self) -> None:
        """Stop the consumer, finish its messages and end the file. Does not wait; see `join`."""
        if not self._is_stopping:
            self._is_stopping = True
            self._greenlets.append(gevent.spawn(self._drain))
            self._wake.set()

    def join(self) -> None:
        gevent.joinall(self._greenlets)
        self._finisher.stop()
        self.has_failed |= self._finisher.has_failed

    # --- arriving messages

    def _on_batch(self, batch: MessageBatch) -> None:
        self._arrived.append(batch)
        self._arrived_bytes += self._size_of(batch)
        self._unfinished += len(batch)
        self._wake.set()

    def _drain(self) -> None:
        try:
            self._consumer.stop(_STOP_TIMEOUT_S)
        finally:
            self._is_drained = True
            self._wake.set()

    # --- writing

    def _run(self) -> None:
        try:
            while not self._is_drained:
                self._wake.wait(max(0.0, self._tick_due_s - monotonic()))
                self._wake.clear()
                self._turn()
            self._end()
        except Exception as error:  # noqa: BLE001 - nsqd sends the messages again
            self.has_failed = True
            self._log.exception("[%s] stopping after a bug: %r", self._name, error)
            self._consumer.begin_to_stop(0)
            self._on_bug()

    def _turn(self) -> None:
        is_tick = monotonic() >= self._tick_due_s
        if self._failures and not is_tick and not self._is_stopping:
            return
        is_reopening, self._is_reopening = self._is_reopening, False
        # nsqd may send no more messages before some are finished.
        is_full = self._unfinished >= self._max_in_flight or (
            self._unfinished > 0 and self._consumer.is_starved
        )
        is_sync_due = is_tick or is_reopening or self._is_stopping or is_full
        if is_sync_due or (self._arrived and (not self._gathers or self._arrived_bytes >= _GATHERED_BYTES)):
            self._store(is_tick, is_sync_due, is_reopening)

    def _store(self, is_tick: bool, is_sync_due: bool, is_closing: bool) -> None:
        """Write the messages that have arrived, sync and end the file if requested, and finish synced messages."""
        self._archive.waiting.extend(self._arrived)
        self._arrived.clear()
        self._arrived_bytes = 0
        try:
            in_thread(self._threadpool, self._archive.work, is_tick, is_sync_due, is_closing)
        except OSError as error:
            self._is_reopening |= is_closing
            self._hold(error)
        else:
            self._go_on(is_tick)
        self._finish_synced()

    def _finish_synced(self) -> None:
        for batch in taken(self._archive.synced):
            self._unfinished -= len(batch)
            with suppress(AlreadyAnswered):  # a message that came again may be in two batches
                batch.finish()
        for file in taken(self._archive.finished):
            self._finisher.add(file)

    # --- failing disk

    def _hold(self, error: OSError) -> None:
        """Pause the consumer after a write error, and schedule a retry. The consumer keeps the messages in flight."""
        if not self._failures:
            self._consumer.pause()
            self._log.error(
                "[%s] cannot write: %s; no more messages are taken, %d are kept in flight, and it is tried again",
                self._name,
                describe(error),
                self._unfinished,
            )
        self._tick_due_s = monotonic() + _RETRY_S[min(self._failures, len(_RETRY_S) - 1)]
        self._failures += 1
        if self._is_stopping:
            self._give_back()

    def _go_on(self, is_tick: bool) -> None:
        if is_tick:
            self._tick_due_s = monotonic() + self._sync_interval_s
        if self._failures:
            self._failures = 0
            self._log.info("[%s] writing again", self._name)
            if not self._is_stopping:
                self._consumer.resume()

    def _give_back(self) -> None:
        """Requeue the messages that cannot be written."""
        batches = list(taken(self._archive.waiting))
        count = sum(map(len, batches))
        if count:
            self.has_failed = True
            self._unfinished -= count
            self._log.error("[%s] %d messages could not be written, and are given back", self._name, count)
        for batch in batches:
            with suppress(AlreadyAnswered):
                batch.requeue(0)

    def _end(self) -> None:
        self._store(is_tick=False, is_sync_due=True, is_closing=True)
        if self._failures:
            self.has_failed = True
            self._archive.abandon()


class Finisher:
    """Moves closed files to their final names, one after the other, and retries after errors.

    has_tried  set when all files have their final names, or one could not get it
    """

    def __init__(self, name: str, threadpool: Any, log: Log) -> None:
        self.has_failed = False
        self.has_tried = Event()
        self._name = name
        self._threadpool = threadpool
        self._log = log
        self._files: list[FinishedFile] = []
        self._greenlet: Any = None
        self._stopping = Event()

    def add(self, file: FinishedFile) -> None:
        self._files.append(file)
        if self._greenlet is None:
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """Try the remaining files once more. After one that fails, the rest is left for the next start."""
        self._stopping.set()
        if self._greenlet is not None:
            self._greenlet.join()

    def _run(self) -> None:
        is_failing = False
        while self._files:
            file = self._files.pop(0)
            try:
                in_thread(self._threadpool, self._finish, file)
                is_failing = False
            except Exception as error:  # noqa: BLE001 - also after a bug, the file is tried again, as are the next ones
                if not is_failing or self._stopping.is_set():
                    self._log.error(
                        "[%s] cannot put %s in its place: %s", self._name, file.name, describe(error)
                    )
                is_failing = True
                self._files.append(file)  # behind the others, which may have their names
                self.has_tried.set()
                if self._stopping.is_set():
                    self.has_failed = True
                    break
                self._stopping.wait(_RETRY_S[-1])
        self._greenlet = None
        self.has_tried.set()

    def _finish(self, file: FinishedFile) -> None:
        entry = file.finish()
        if entry.repaired:
            text = "[%s] finished %s, which an earlier run left behind: %d messages, %d torn bytes cut off"
            self._log.warning(text, self._name, entry.path, entry.messages, entry.cut_bytes)
        else:
            self._log.info(
                "[%s] finished %s: %d messages, %d bytes", self._name, entry.path, entry.messages, entry.bytes
            )
        damage = file.damage_text(entry)
        if damage:
            self.has_failed = True
            self._log.error("[%s] DAMAGED: %s", self._name, damage)
