"""`--export-to-go=DIR`: the messages of a data path as files of Go's nsqd v1.3.0.

Each channel becomes a queue of the messages that it has not finished; each topic one of those that no channel has yet.
Go's files have no due times: messages with one are the last of their queue. Everything is written to DIR.tmp, read
again, and renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from google_crc32c import extend

from nsqd_py.batch import Batch
from nsqd_py.broker.state_files import METADATA_FILE, STANDBY_FILE, document_of
from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.diskqueue.journal import SavedPosition
from nsqd_py.diskqueue.ranges import Range
from nsqd_py.diskqueue.reading import RecordWindow
from nsqd_py.diskqueue.records import Damaged, Incomplete
from nsqd_py.diskqueue.recovery import RecoveredFile
from nsqd_py.fsck.counting import LogNumbers
from nsqd_py.fsck.reading import LoadedTopic, kept_numbers, load_directory
from nsqd_py.fsck.reports import Refused, bytes_text, count_text, table
from nsqd_py.go_import.go_files import (
    HEAD_BYTES,
    GoMessage,
    GoPosition,
    encode_go_message,
    go_file_name,
    go_position_name,
    parse_go_name,
)
from nsqd_py.go_import.go_queue import GoDamage, find_go_queues
from nsqd_py.go_import.moving import sync_files
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime import private_files

_BUFFER_BYTES = 1024 * 1024
_DISK_BLOCK_BYTES = 4096
_GO_MAX_MSG_SIZE = 1024 * 1024  # the default of Go's nsqd


def export(directory: Path, target: Path, now_ns: int, max_file_bytes: int, max_message_bytes: int) -> str:
    """Write the messages of a data path to the new directory `target`; return the counts, for people to read.

    Raises Refused, OSError and StartError; then there is no `target`.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Refused(f"{target} is not empty; name a new directory")
    if target.is_mount():
        raise Refused(f"{target} is a mount point, which cannot be renamed to; name a new directory in it")
    folder = target.with_name(f"{target.name}.tmp")
    _remove(folder)
    folder.mkdir(private_files.DIRECTORY_MODE)
    try:
        queues = _measured(directory, target, now_ns, max_file_bytes, max_message_bytes)
        _write(queues, folder, max_file_bytes)
        folder.rename(target)
    except BaseException:
        _remove(folder)
        raise
    sync_directory(target.parent)
    return "\n".join(_lines(queues, target))


def _measured(directory: Path, target: Path, now_ns: int, max_file_bytes: int, max_message_bytes: int) -> list[_Queue]:
    """Return the queues to write. Raises OSError, StartError, and Refused if Go's nsqd or the disk cannot take them."""
    queues = [queue for topic in _load(directory, now_ns) for queue in _queues_of(topic, now_ns)]
    for queue in queues:
        queue.measure()
    largest = max(queues, key=lambda queue: queue.largest_bytes)
    if largest.largest_bytes > max_message_bytes:
        raise Refused(
            f"{largest.name} has a message of {largest.largest_bytes} bytes, and Go's nsqd skips the rest of a file at "
            f"one above its --max-msg-size: run both with --max-msg-size={largest.largest_bytes}"
        )
    needed = sum(queue.disk_bytes(max_file_bytes) for queue in queues)
    free = shutil.disk_usage(target.parent)[2]
    if needed > free:
        raise Refused(f"{target} would take {bytes_text(needed)}; {bytes_text(free)} are free on its disk")
    return queues


def _load(directory: Path, now_ns: int) -> list[LoadedTopic]:
    """Return the topics that a start would create. Raises Refused if one would not start, or lose something."""
    if (directory / STANDBY_FILE).exists():
        raise Refused(f"{directory} is the copy of a standby: export the data path of its primary, or promote it first")
    report, topics = load_directory(directory, now_ns)
    if not report.is_well:
        raise Refused(f"{directory} is damaged: see nsqd-py --check-data={directory}, and repair it with --repair")
    if report.go_files:
        raise Refused(f"{directory} has files of Go's nsqd that were not imported: start nsqd-py on it, and stop it")
    topics = [topic for topic in topics if _may_last(topic.entry.name)]
    if not topics:
        raise Refused(f"{directory} has no topics: --data-path is the directory in which nsqd-py worked")
    return topics


def _may_last(name: str) -> bool:
    return is_valid_name(name.encode()) and not is_ephemeral(name)


@dataclass(slots=True)
class _Queue:
    """A queue to write.

    channel  None for the queue of the topic
    saved    position of the channel
    later    its messages with a due time in the future
    """

    topic: str
    channel: str | None
    is_paused: bool
    files: list[RecoveredFile]
    log: LogNumbers
    saved: SavedPosition
    later: set[int] = field(default_factory=set)
    count: int = 0
    size_bytes: int = 0
    largest_bytes: int = 0
    checksum: int = 0

    @property
    def name(self) -> str:
        return self.topic if self.channel is None else f"{self.topic}:{self.channel}"

    def measure(self) -> None:
        """Count the messages and their bytes. Raises OSError and Refused."""
        for _, _, _, body in self.messages():
            self.count += 1
            self.size_bytes += HEAD_BYTES + len(body)
            self.largest_bytes = max(self.largest_bytes, len(body))

    def disk_bytes(self, max_file_bytes: int) -> int:
        """Return the space of its files on a disk, at most: two files in a row have more than one may have."""
        file_count = 1 + 2 * self.size_bytes // max(1, max_file_bytes)
        return self.size_bytes + _DISK_BLOCK_BYTES * (file_count + 1) if self.count else 0

    def ranges(self, log: LogNumbers) -> list[Range]:
        return log.held if self.channel is None else log.unfinished(self.saved)

    def messages(self) -> Iterator[GoMessage]:
        """Yield the messages in the order of the log, those of `later` at the end. Raises OSError and Refused."""
        for is_later in (False, True) if self.later else (False,):
            for recovered in self.files:
                ranges = self.ranges(replace(self.log, kept=list(kept_numbers(recovered))))
                numbers = (seq for low, high in ranges for seq in range(low, high))
                yield from self._read(recovered, (seq for seq in numbers if (seq in self.later) is is_later))

    def _read(self, recovered: RecoveredFile, numbers: Iterator[int]) -> Iterator[GoMessage]:
        waiting = self.saved.waiting
        file, window = recovered.file, RecordWindow(recovered.file.read, recovered.file.end_offset)
        batch: Batch | None = None
        for seq in numbers:
            if batch is None or seq >= batch.end_seq:
                try:
                    batch = window.batch(window.find(file, seq), file.salt)
                except (Damaged, Incomplete) as error:
                    raise Refused(f"{file.path}: message {seq} cannot be read any more") from error
            place = seq - batch.first_seq
            attempts = waiting[seq][1] if seq in waiting else 0
            yield batch.timestamp_ns, attempts, batch.base_id + place, batch.message(place)
        file.close()

    def write(self, folder: Path, max_file_bytes: int) -> None:
        """Write the files and the position. Raises OSError and Refused."""
        number = offset = 0
        file = self._create(folder, number)
        try:
            for message in self.messages():
                data = encode_go_message(message)
                if offset and offset + len(data) > max_file_bytes:
                    file.close()
                    number, offset = number + 1, 0
                    file = self._create(folder, number)
                file.write(data)
                offset += len(data)
                self.checksum = extend(self.checksum, data)
        finally:
            file.close()
        position = GoPosition(self.count, 0, 0, number, offset)
        private_files.write_bytes(folder / go_position_name(self.topic, self.channel), position.encode())

    def _create(self, folder: Path, number: int) -> BinaryIO:
        return private_files.create(folder / go_file_name(self.topic, self.channel, number), _BUFFER_BYTES)


def _queues_of(topic: LoadedTopic, now_ns: int) -> Iterator[_Queue]:
    positions = {name: saved for name, saved in topic.positions.items() if _may_last(name)}
    for channel, saved in ((None, SavedPosition()), *sorted(positions.items())):
        is_paused = topic.entry.is_paused if channel is None else topic.is_paused(channel)
        queue = _Queue(topic.entry.name, channel, is_paused, topic.files, topic.log, saved)
        queue.later = topic.log.later(queue.ranges(topic.log), saved.waiting, now_ns)
        yield queue


# ---- the directory


def _write(queues: list[_Queue], folder: Path, max_file_bytes: int) -> None:
    """Write everything, and verify it. Raises OSError and Refused."""
    for queue in queues:
        if queue.count:
            queue.write(folder, max_file_bytes)
    metadata = _metadata(queues)
    private_files.write_bytes(folder / METADATA_FILE, metadata)
    sync_files(folder.iterdir())
    sync_directory(folder)
    for path in folder.iterdir():
        _forget_cached(path)
    _verify(folder, queues, metadata)


def _forget_cached(path: Path) -> None:
    """Let the file be read from the disk again. Raises OSError."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _remove(folder: Path) -> None:
    """Remove an export that was interrupted. Raises OSError, and Refused if the folder is anything else."""
    if not folder.exists():
        return
    paths = list(folder.iterdir()) if folder.is_dir() else [folder]
    if any(parse_go_name(path.name) is None and path.name != METADATA_FILE for path in paths):
        raise Refused(f"{folder} is in the way; move it elsewhere")
    for path in paths:
        path.unlink()
    folder.rmdir()


def _verify(folder: Path, queues: list[_Queue], metadata: bytes) -> None:
    """Read everything again. Raises OSError, and Refused if it is not what was written."""
    found = {(queue.topic, queue.channel): queue for queue in find_go_queues(folder)}
    is_same = (folder / METADATA_FILE).read_bytes() == metadata
    for queue in queues:
        damages: list[GoDamage] = []
        count = checksum = 0
        read = found.get((queue.topic, queue.channel))
        if read is not None:
            for messages in read.blocks(damages.append):
                count += len(messages)
                checksum = extend(checksum, b"".join(map(encode_go_message, messages)))
            is_same &= read.position is not None and read.position.depth == count and not damages
        is_same &= (count, checksum) == (queue.count, queue.checksum)
    if not is_same:
        raise Refused(f"{folder} does not hold what was written to it; its disk may be faulty")


def _metadata(queues: list[_Queue]) -> bytes:
    topics: list[dict[str, Any]] = []
    for queue in queues:
        if queue.channel is None:
            topics.append({"name": queue.topic, "paused": queue.is_paused, "channels": []})
        else:
            topics[-1]["channels"].append({"name": queue.channel, "paused": queue.is_paused})
    return orjson.dumps(document_of(topics))


def _lines(queues: list[_Queue], target: Path) -> Iterator[str]:
    """Yield the counts."""
    rows = [
        (queue.topic, queue.channel or "", f"{queue.count:,}", f"{len(queue.later):,}" if queue.later else "") for queue in queues
    ]
    yield from table([("TOPIC", "CHANNEL", "MESSAGES", "DEFERRED"), *rows])
    yield ""
    topic_count = sum(queue.channel is None for queue in queues)
    counts = {"topic": topic_count, "channel": len(queues) - topic_count, "message": sum(q.count for q in queues)}
    yield f"{target}: {', '.join(count_text(n, noun) for noun, n in counts.items())}, read again after writing"
    deferred = sum(len(queue.later) for queue in queues)
    if deferred:
        yield (
            f"{count_text(deferred, 'deferred message')} lost the due time, for which Go's nsqd has no place: "
            "it delivers them at once"
        )
    largest = max(queue.largest_bytes for queue in queues)
    limit = f" --max-msg-size={largest}" if largest > _GO_MAX_MSG_SIZE else ""
    yield f"start Go's nsqd on it: nsqd --data-path={target}{limit}"
