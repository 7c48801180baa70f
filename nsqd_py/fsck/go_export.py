"""`--export-to-go=DIR`: the messages of a data path as files of Go's nsqd v1.3.0.

Each channel becomes a queue of the messages that it has not finished; each topic one of those that no channel has yet.
Go's files have no due times: messages with one are the last of their queue. Everything is written to DIR.tmp and renamed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from nsqd_py.broker.state_files import METADATA_FILE, STANDBY_FILE, STORE_FILE
from nsqd_py.diskqueue.files.log_file import sync_directory
from nsqd_py.diskqueue.journals.journal import SavedPosition
from nsqd_py.diskqueue.journals.ranges import Range
from nsqd_py.diskqueue.reading import RecordWindow
from nsqd_py.diskqueue.records import Damaged, Incomplete
from nsqd_py.diskqueue.recovery import RecoveredFile
from nsqd_py.fsck.reading import LoadedTopic, LogNumbers, load_directory, readable_numbers
from nsqd_py.fsck.reports import DataRefused, DirectoryReport, count_text, finding_text, some, table
from nsqd_py.go_import import go_files
from nsqd_py.go_import.take_over import may_last, sync_files
from nsqd_py.protocol.batch import Batch
from nsqd_py.runtime import private_files
from nsqd_py.version import NSQ_VERSION

_BUFFER_BYTES = 1024 * 1024
_GO_MAX_MSG_SIZE = 1024 * 1024  # the default of Go's nsqd


def export(
    directory: Path, target: Path, now_ns: int, max_file_bytes: int, max_message_bytes: int
) -> tuple[str, str]:
    """Write the messages of a data path to the new directory `target`.

    Return the counts, and the damage because of which messages are missing, for people to read.

    Raises DataRefused, OSError and StartError; then there is no `target`.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataRefused(f"{target} is not empty; name a new directory")
    if target.is_mount():
        raise DataRefused(
            f"{target} is a mount point, which cannot be renamed to; name a new directory in it"
        )
    folder = target.with_name(f"{target.name}.tmp")
    _remove(folder)
    folder.mkdir(private_files.DIRECTORY_MODE)
    try:
        if (directory / STANDBY_FILE).exists():
            raise DataRefused(
                f"{directory} is the copy of a standby: export the data path of its primary, or promote it first"
            )
        report, topics = load_directory(directory, now_ns)
        if report.go_files:
            raise DataRefused(
                f"{directory} has files of Go's nsqd that were not imported: start nsqd-py on it, and stop it"
            )
        if (directory / STORE_FILE).exists():
            _check_store(directory)
        queues: list[_Queue] = []
        for topic in topics:
            if may_last(topic.entry.name):
                queues += _queues_of(topic, now_ns)
        if not queues:
            raise DataRefused(
                f"{directory} has no topics: --data-path is the directory in which nsqd-py worked"
            )
        for queue in queues:
            queue.write(folder, max_file_bytes)
        largest_bytes = max(queue.largest_bytes for queue in queues)
        if largest_bytes > max_message_bytes:
            raise DataRefused(
                f"there is a message of {largest_bytes} bytes, and Go's nsqd skips the rest of a file at one above its "
                f"--max-msg-size: run both with --max-msg-size={largest_bytes}"
            )
        private_files.write_bytes(folder / METADATA_FILE, _metadata(queues))
        sync_files(folder.iterdir())
        sync_directory(folder)
        folder.rename(target)
    except BaseException:
        _remove(folder)
        raise
    sync_directory(target.parent)
    return "\n".join(_lines(queues, target)), _damage(report)


def _check_store(directory: Path) -> None:
    """Raise DataRefused if a data path that was in a store may have unfinished messages only there."""
    from nsqd_py.store.absent import absent_text  # only a store needs them
    from nsqd_py.store.leaving import left_store

    store = left_store(directory)
    absent = absent_text(directory)
    if store and absent:
        raise DataRefused(
            f"{directory} lacks unfinished messages that are in {store} ({absent}): restore that store without --store into "
            "another --data-path, with --restore-from, and export that. To export without them, move "
            f"{STORE_FILE} out of the data path"
        )


@dataclass(slots=True)
class _Queue:
    """A queue to write.

    channel  None for the queue of the topic
    saved    position of the channel
    later    its messages with a due time in the future
    """

    source: LoadedTopic
    channel: str | None
    saved: SavedPosition
    later: set[int] = field(default_factory=set)
    count: int = 0
    largest_bytes: int = 0

    @property
    def topic(self) -> str:
        return self.source.entry.name

    def ranges(self, log: LogNumbers) -> list[Range]:
        if self.channel is None:
            return log.held
        return log.unfinished(self.saved)

    def messages(self) -> Iterator[go_files.GoMessage]:
        """Yield the messages in the order of the log, those of `later` at the end. Raises OSError and DataRefused."""
        passes = (False, True) if self.later else (False,)
        for is_later in passes:
            for recovered in self.source.files:
                numbers = (seq for seq in self._numbers(recovered) if (seq in self.later) is is_later)
                yield from self._read(recovered, numbers)

    def _numbers(self, recovered: RecoveredFile) -> Iterator[int]:
        """Yield the numbers of the messages of a file that are in this queue."""
        log = replace(self.source.log, readable=list(readable_numbers(recovered)))
        for low, high in self.ranges(log):
            yield from range(low, high)

    def _read(self, recovered: RecoveredFile, numbers: Iterator[int]) -> Iterator[go_files.GoMessage]:
        waiting = self.saved.waiting.by_number()
        file = recovered.file
        window = RecordWindow(file.read, file.end_offset)
        batch: Batch | None = None
        for seq in numbers:
            if batch is None or seq >= batch.end_seq:
                try:
                    batch = window.batch(window.find(file, seq), file.salt)
                except (Damaged, Incomplete) as error:
                    raise DataRefused(f"{file.path}: message {seq} cannot be read any more") from error
            index = seq - batch.first_seq
            attempts = 0
            if seq in waiting:
                attempts = waiting[seq][1]
            yield batch.timestamp_ns, attempts, batch.base_id + index, batch.message(index)
        file.close()

    def write(self, folder: Path, max_file_bytes: int) -> None:
        """Write the files and the position, if there are messages. Raises OSError and DataRefused."""
        number = 0
        offset = 0
        with ExitStack() as stack:
            for message in self.messages():
                data = go_files.encode_go_message(message)
                if not self.count or offset + len(data) > max_file_bytes:
                    stack.close()
                    if self.count:
                        number += 1
                    offset = 0
                    path = folder / go_files.go_file_name(self.topic, self.channel, number)
                    file = stack.enter_context(private_files.create(path, _BUFFER_BYTES))
                file.write(data)
                offset += len(data)
                self.count += 1
                self.largest_bytes = max(self.largest_bytes, len(data) - go_files.HEAD_BYTES)
        if self.count:
            position = go_files.GoPosition(self.count, 0, 0, number, offset)
            private_files.write_bytes(
                folder / go_files.go_position_name(self.topic, self.channel), position.encode()
            )


def _queues_of(topic: LoadedTopic, now_ns: int) -> Iterator[_Queue]:
    positions: list[tuple[str | None, SavedPosition]] = [(None, SavedPosition())]
    for name, saved in sorted(topic.positions.items()):
        if may_last(name):
            positions.append((name, saved))
    for channel, saved in positions:
        queue = _Queue(topic, channel, saved)
        queue.later = topic.log.later(queue.ranges(topic.log), saved.waiting, now_ns)
        yield queue


def _remove(folder: Path) -> None:
    """Remove an export that was interrupted. Raises OSError, and DataRefused if the folder is anything else."""
    if not os.path.lexists(folder):
        return
    try:
        descriptor = private_files.open_directory(folder, is_own=True)
    except OSError as error:
        raise DataRefused(f"{folder} is in the way; move it elsewhere: {error.strerror}") from error
    try:
        names = os.listdir(descriptor)
        if any(go_files.parse_go_name(name) is None and name != METADATA_FILE for name in names):
            raise DataRefused(f"{folder} is in the way; move it elsewhere")
        for name in names:
            os.unlink(name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    folder.rmdir()


def _metadata(queues: list[_Queue]) -> bytes:
    topics: list[dict[str, Any]] = []
    for queue in queues:
        if queue.channel is None:
            topics.append({"name": queue.topic, "paused": queue.source.entry.is_paused, "channels": []})
        else:
            topics[-1]["channels"].append(
                {"name": queue.channel, "paused": queue.source.is_paused(queue.channel)}
            )
    return orjson.dumps({"topics": topics, "version": NSQ_VERSION})


def _damage(report: DirectoryReport) -> str:
    """Return a sentence about the damage and the missing messages; an empty one if the directory is well."""
    if report.is_well:
        return ""
    findings = "; ".join(some(list(map(finding_text, report.damage))))
    channels = [
        (channel.missing, f"{topic.name}:{channel.name}")
        for topic in report.topics
        for channel in topic.channels
    ]
    counts = [f"{count_text(missing, 'message')} of {name}" for missing, name in channels if missing]
    missing = f"; missing: {', '.join(counts)}" if counts else ""
    return f"{report.path} is damaged, and what cannot be read is not exported: {findings}{missing}"


def _row(queue: _Queue) -> tuple[str, str, str, str]:
    deferred = f"{len(queue.later):,}" if queue.later else ""
    return queue.topic, queue.channel or "", f"{queue.count:,}", deferred


def _lines(queues: list[_Queue], target: Path) -> Iterator[str]:
    """Yield the lines of the report: a table of counts, and what the operator must know."""
    yield from table([("TOPIC", "CHANNEL", "MESSAGES", "DEFERRED"), *map(_row, queues)])
    yield ""
    topic_count = sum(queue.channel is None for queue in queues)
    counts = {
        "topic": topic_count,
        "channel": len(queues) - topic_count,
        "message": sum(q.count for q in queues),
    }
    yield f"{target}: {', '.join(count_text(n, noun) for noun, n in counts.items())}"
    deferred = sum(len(queue.later) for queue in queues)
    if deferred:
        yield (
            f"{count_text(deferred, 'deferred message')} lost the due time, for which Go's nsqd has no place: "
            "it delivers them at once"
        )
    largest = max(queue.largest_bytes for queue in queues)
    limit = f" --max-msg-size={largest}" if largest > _GO_MAX_MSG_SIZE else ""
    yield f"start Go's nsqd on it: nsqd --data-path={target}{limit}"
