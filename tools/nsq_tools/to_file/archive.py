"""The files of one topic, one after the other. Its methods block; one thread at a time may call them."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from nsq_tools.to_file.finishing import FinishedFile, entry_of, make_directories, with_revision
from nsq_tools.to_file.formats import FileEncoder, FileFormat, Tally, Warn
from nsq_tools.to_file.log_parts import LogPositions
from nsq_tools.to_file.options import DATETIME
from nsq_tools.to_file.output import Claim, ClaimDetails, OutputFile, side_path
from nsqd_py.client.message import Message, MessageBatch
from nsqd_py.client.options import ClientOptions
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.settings.durations import format_duration
from nsqd_py.stores.compression import Codec

T = TypeVar("T")

# Maximum size of a write, unless a single message is larger.
_BLOCK_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Rotation:
    """The limits of one file; 0 means no limit. `size_bytes` is before compression, as in Go's nsq_to_file."""

    size_bytes: int = 0
    interval_ns: int = 0

    def is_too_large(self, size_bytes: int) -> bool:
        return 0 < self.size_bytes < size_bytes

    def reason(self, old_name: str, new_name: str, size_bytes: int, age_ns: int) -> str | None:
        """Return the reason to end a file with this name, size and age, or None to continue with it."""
        if new_name != old_name:
            return f"new filename {new_name}"
        if self.interval_ns and not 0 <= age_ns <= self.interval_ns:  # below 0 after the clock was set back
            return f"{format_duration(age_ns)} since last open"
        if self.is_too_large(size_bytes):
            return f"{size_bytes} bytes (> {self.size_bytes})"
        return None


@dataclass(frozen=True)
class Plan:
    """The settings for the files of a topic.

    template       template of names; <DATETIME> and <REV> are replaced for each file
    work_dir, output_dir  the directories of files that are written, and of finished ones, or from which they are uploaded
    level          level of the codec
    is_shared      True to append to an existing file, as in Go's nsq_to_file
    has_revisions  True if <REV> distinguishes files with the same name; otherwise several runs append to one file
    skips_empty    True to create a file only when there is a message
    store          the object store that finished files are uploaded to from the output_dir
    table          the table that they are committed to
    is_utc         True if <DATETIME> is in UTC; otherwise it is in local time
    client         settings of requests to nsqds
    """

    topic: str
    channel: str
    template: str
    datetime_format: str
    work_dir: Path
    output_dir: Path
    form: FileFormat
    codec: Codec
    level: int
    rotation: Rotation
    is_shared: bool
    skips_empty: bool
    store: str = ""
    table: str = ""
    is_utc: bool = False
    client: ClientOptions = ClientOptions()
    has_revisions: bool = True

    def name(self, now_ns: int) -> str:
        moment = datetime.fromtimestamp(now_ns / 1e9, UTC)
        moment = moment if self.is_utc else moment.astimezone()
        return self.template.replace(DATETIME, moment.strftime(self.datetime_format))


@dataclass
class _Current:
    """The file that is being written."""

    name: str
    opened_ns: int
    output: OutputFile
    encoder: FileEncoder
    claim: Claim
    size_bytes: int
    synced: Tally

    @property
    def is_empty(self) -> bool:
        return self.output.end == self.output.start_offset

    def append(self, data: bytes) -> None:
        """Append data, and before it the file's header if it is not there: a failed sync takes that back, too."""
        written = data
        if self.is_empty:
            written = self.encoder.header + data
        self.output.append(written)


class _Single:
    """One message of a batch, with what a batch has for encoders."""

    def __init__(self, message: Message, batch: MessageBatch) -> None:
        self.topic = batch.topic
        self.channel = batch.channel
        self.nsqd = batch.nsqd
        self.connection = batch.connection
        self.http_port = batch.http_port
        self.ids = [message.id]
        self.bodies = [message.body]
        self.timestamps_ns = [message.timestamp_ns]
        self.attempts = [message.attempts]
        self.finish = message.finish
        self.requeue = message.requeue

    def __len__(self) -> int:
        return 1


def taken(queue: deque[T]) -> Iterator[T]:
    """Yield the items of a queue, and remove them from it."""
    while queue:
        yield queue.popleft()


@dataclass(eq=False)
class Archive:
    """Writes batches, and records which of them are synced.

    After an OSError, the next call writes everything that is not synced again.

    waiting   batches for the next `store`; the caller adds them
    synced    batches that are synced; the caller takes them
    finished  files that are closed; the caller takes them
    """

    _plan: Plan
    _log: Log
    _warn: Warn
    _clock_ns: Callable[[], int]
    waiting: deque[MessageBatch] = field(default_factory=deque)
    synced: deque[MessageBatch] = field(default_factory=deque)
    finished: deque[FinishedFile] = field(default_factory=deque)
    _unsynced: list[MessageBatch] = field(default_factory=list)
    _current: _Current | None = None
    _last_name: str = ""
    _revision: int = 0

    def __post_init__(self) -> None:
        self._positions = LogPositions(self._plan.topic, self._plan.client)

    # --- blocking; raises OSError

    def work(self, is_tick: bool, is_sync_due: bool, is_closing: bool) -> None:
        """End a file that is too old, write the queued batches, sync, and end the file, as the arguments say."""
        if is_tick:
            self.tick()
        self.store(is_sync_due=is_sync_due)
        if is_closing:
            self.close()

    def store(self, *, is_sync_due: bool) -> None:
        """Write all queued batches, and sync if it is due."""
        try:
            while self.waiting:
                self._write_some()
            if is_sync_due:
                self._sync()
        except OSError:
            self._take_back()
            raise

    def tick(self) -> None:
        """End a file that is too old, and begin the next unless empty files are skipped."""
        if not self._rotation_reason():
            return
        self.close()
        if not self._plan.skips_empty:
            self._open()

    def close(self) -> None:
        """Sync and end the current file, if there is one."""
        current = self._current
        if not current:
            return
        try:
            if current.is_empty:
                current.append(current.encoder.encode([]).data)
            self._sync()
        except OSError:
            self._take_back()
            raise
        self._current = None
        output = current.output
        self._positions.note_ends(current.synced.parts)
        entry = entry_of(current.claim.details, current.synced, output.synced_bytes, output.checksum)
        self.finished.append(FinishedFile(current.claim, entry))
        output.close()

    def abandon(self) -> None:
        """Close the current file unfinished; the next start finishes it."""
        if self._current:
            self._current.output.close()
            self._current.claim.drop()
            self._current = None

    # --- writing

    def _write_some(self) -> None:
        """Write the first queued batches to the current file, or to a new one."""
        current = self._file()
        batches = self._take(current.size_bytes)
        self._unsynced.extend(batches)  # before the write, so that `_take_back` finds them after an error
        encoded = current.encoder.encode(batches)
        current.append(encoded.data)
        current.size_bytes += encoded.plain_bytes

    def _take(self, file_bytes: int) -> list[MessageBatch]:
        """Remove the queued batches that one write takes: up to its maximum size, or until the file is large enough.

        As in Go's nsq_to_file, a file ends with the message that makes it too large, so the batch around it is divided.
        """
        some: list[MessageBatch] = []
        plan = self._plan
        end_bytes = file_bytes + _BLOCK_BYTES
        while not some or (
            self.waiting and file_bytes < end_bytes and not plan.rotation.is_too_large(file_bytes)
        ):
            batch = self.waiting.popleft()
            new_bytes = file_bytes + plan.form.size_of(batch)
            if len(batch) > 1 and plan.rotation.is_too_large(new_bytes):
                singles = (_Single(message, batch) for message in reversed(batch.messages()))
                self.waiting.extendleft(singles)  # type: ignore[arg-type]
            else:
                some.append(batch)
                file_bytes = new_bytes
        return some

    def _sync(self) -> None:
        current = self._current
        if not current:
            return
        current.output.sync()
        batches, self._unsynced = self._unsynced, []
        self.synced.extend(batches)
        for batch in batches:
            current.synced.add(len(batch), batch.timestamps_ns)
        if self._plan.form.has_ids and self._positions.note(current.synced.parts, batches):
            # If the next start finishes it.
            current.claim.update(replace(current.claim.details, nsqds=current.synced.nsqds()))

    def _take_back(self) -> None:
        """Queue the unsynced batches again: they may not be on the disk, even if they were written."""
        self.waiting.extendleft(reversed(self._unsynced))
        self._unsynced.clear()
        current = self._current
        if not current:
            return
        with suppress(OSError):  # if the disk keeps failing, the next write reports it
            output = current.output
            output.rewind()
            if output.is_removed or output.is_moved:
                self._leave(current, is_lost=output.is_removed)

    def _leave(self, current: _Current, is_lost: bool) -> None:
        """Go on in a new file. The claim of one that was moved stays, for a start with the directory that it is in now."""
        self.abandon()
        if is_lost or current.output.is_shared:
            current.claim.release()  # a new file may get the same name

    # --- from file to file

    def _file(self) -> _Current:
        """Return the current file, after rotation if it is due."""
        reason = self._rotation_reason()
        if self._current and reason:
            self._log.info("[%s/%s] %s, rotating...", self._plan.topic, self._plan.channel, reason)
            self.close()
        return self._current or self._open()

    def _rotation_reason(self) -> str | None:
        current = self._current
        if not current:
            return "no file is open"
        now_ns = self._clock_ns()
        return self._plan.rotation.reason(
            current.name, self._plan.name(now_ns), current.size_bytes, now_ns - current.opened_ns
        )

    def _open(self) -> _Current:
        now_ns = self._clock_ns()
        name = self._plan.name(now_ns)
        revision = 0
        if name == self._last_name:
            revision = self._revision + 1
        while not (current := self._open_revision(name, revision, now_ns)):
            revision += 1
        self._last_name = name
        self._revision = revision
        self._current = current
        return current

    def _open_revision(self, name: str, revision: int, now_ns: int) -> _Current | None:
        """Open a file with this revision. Return None if the name is taken."""
        plan = self._plan
        revised = with_revision(name, revision)
        if self._is_taken(revised):
            return None
        # Resolved once for each file, so that it ends in the same directories even if a symbolic link in their paths
        # changes in the meantime.
        work_dir = plan.work_dir.resolve()
        token = secrets.token_hex(8)
        if plan.form.convert:
            work_path = side_path(work_dir, token, ".framed")
        else:
            work_path = work_dir / revised
        make_directories(work_path.parent, work_dir)
        details = ClaimDetails(
            plan.topic,
            plan.channel,
            plan.form.name,
            plan.codec.name,
            name,
            revision,
            str(work_path.relative_to(work_dir)),
            str(plan.output_dir.resolve()),
            plan.is_shared,
            # Known before the first write, so that a kill there makes no message of others one of this file.
            offset=_size_of(work_path),
            store=plan.store,
            table=plan.table,
            # Hive's files do not store what their directories say: pandas and pyarrow refuse a column that is there twice.
            omits_topic=f"topic={plan.topic}" in Path(name).parts and not plan.table,
        )
        claim = Claim.make(work_dir, token, details)
        try:
            output = self._output_of(claim)
        except OSError as error:
            claim.release()
            if isinstance(error, FileExistsError):  # another process was faster
                return None
            raise
        self._log.info("[%s/%s] opening %s", plan.topic, plan.channel, work_path)
        encoder = plan.form.encoder(plan.codec, plan.level, self._warn)
        return _Current(name, now_ns, output, encoder, claim, output.end, Tally())

    def _is_taken(self, revised: str) -> bool:
        plan = self._plan
        if plan.is_shared:
            return plan.rotation.is_too_large(_size_of(plan.work_dir / revised))
        for path in (plan.output_dir / revised, plan.work_dir / revised):
            if path.exists():
                self._log.warning("[%s/%s] file already exists: %s", plan.topic, plan.channel, path)
                return True
        return False

    def _output_of(self, claim: Claim) -> OutputFile:
        """Open the file of a claim. Raises OSError."""
        output = OutputFile(claim.work_path, is_shared=self._plan.is_shared)
        if output.start_offset != claim.details.offset:  # another program has written in the meantime
            try:
                claim.update(replace(claim.details, offset=output.start_offset))
            except OSError:
                output.close()
                raise
        return output


def _size_of(path: Path) -> int:
    """Return the size of a file; 0 if it does not exist."""
    if path.exists():
        return path.stat().st_size
    return 0
