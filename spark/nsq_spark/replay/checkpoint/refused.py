"""The messages that the target refuses: found again in the archive, and saved in a file with the reason.

    {"timestamp": ..., "id": "...", "attempts": 1, "topic": "...", "channel": "...", "nsqd": "host:port", "body": "...",
     "file": "...", "position": 7, "error": "..."}

The file is `jsonl` of nsq-to-file with three more fields, so nsq-cat shows it and spark-replay sends it. The rows that a task
sends have neither ids nor positions, which most replays would read without use. They are read if a message is refused.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from nsq_spark.archive.chunk import Chunk, Payload
from nsq_spark.archive.read import read
from nsq_spark.archive.splits import ArchiveError, Compression, Damage, FileInfo, Split, plan_splits
from nsq_spark.archive.storage import Storage
from nsq_spark.publisher import Producers, PublishBatch, PublishObserver, TaskPublisher
from nsq_spark.replay.job import SHARED, Job, checkpoint_errors
from nsqd_py.diskqueue.files.log_file import sync_directory
from nsqd_py.runtime.private_files import create, open_file

_COLUMNS = ("timestamp_ns", "id", "attempts", "topic", "channel", "nsqd", "file", "position", "body")
_UNKNOWN = dict.fromkeys(_COLUMNS)
# Of messages whose file the driver does not see. Above this, it gets them without their bodies.
_MOST_RETURNED_BYTES = 64 * 1024 * 1024
_BODIES = ("body", "body_base64")
_LETTERS_TOGETHER = 1000


class RefusedMessage(NamedTuple):
    """A message that nsqd refused. `part` is the part of a file that it was read from, as `batch_reader` names it."""

    topic: str
    timestamp_ns: int | None
    body: bytes
    part: str
    error: str

    def line(self, row: Mapping[str, Any]) -> bytes:
        """Return the message as a line of the file; `row` has what the archive knows of it."""
        known = {**_UNKNOWN, "file": self.part.partition(":")[2], **row}
        fields = {
            "timestamp": self.timestamp_ns,
            "id": known["id"],
            "attempts": known["attempts"],
            "topic": self.topic,
            "channel": known["channel"],
            "nsqd": known["nsqd"],
            **_body_fields(self.body),
            "file": known["file"],
            "position": known["position"],
            "error": self.error,
        }
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def _body_fields(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}


# ---- in a task


@dataclass
class RefusedMessages:
    """The messages that nsqd refused in one try of a task.

    path      the file that gets them; None if the driver would not see it
    returned  then their lines, which the task returns to the driver
    """

    job: Job
    files: Sequence[FileInfo]
    path: Path | None
    returned: list[bytes] = field(default_factory=list)
    _returned_bytes: int = 0
    # Files and positions of those that are found again.
    _found: set[tuple[str, int]] = field(default_factory=set)
    _searched: str = ""  # the part that was searched last, and its chunks that may have the next messages
    _rest: Iterator[Chunk] = iter(())

    def keep(self, refused: Sequence[RefusedMessage]) -> None:
        """Write messages durably, or keep their lines in memory. Raises CheckpointError."""
        if not self.path:
            for line in self._lines(refused):
                self._return(line)
            return
        lines = b"".join(self._lines(refused))
        with (
            checkpoint_errors(f"{self.path} cannot be written"),
            open(self.path, "ab", opener=partial(open_file, mode=SHARED)) as file,
        ):
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())

    def _return(self, line: bytes) -> None:
        if self._returned_bytes + len(line) > _MOST_RETURNED_BYTES:
            line = without_body(line)
        self._returned_bytes += len(line)
        self.returned.append(line)

    def _lines(self, refused: Sequence[RefusedMessage]) -> Iterator[bytes]:
        for part in dict.fromkeys(message.part for message in refused):
            yield from self._lines_of(part, [message for message in refused if message.part == part])

    def _lines_of(self, part: str, messages: Sequence[RefusedMessage]) -> Iterator[bytes]:
        """Yield the lines of the messages that are found again, in the order of the file; then those of the others."""
        missing = defaultdict(list)  # by topic, timestamp and body
        for message in messages:
            missing[message[:3]].append(message)
        for chunks in self._searches(part):
            with suppress(ArchiveError):
                for chunk in chunks:
                    for row in _rows_in(chunk, messages):
                        same = missing[row["topic"], row["timestamp_ns"], row["body"]]
                        position = row["file"], row["position"]
                        if same and position not in self._found:
                            self._found.add(position)
                            yield same.pop(0).line(row)
                    if not any(missing.values()):
                        self._searched = part
                        self._rest = chain([chunk], chunks)
                        return
        for message in chain.from_iterable(missing.values()):
            yield message.line({})

    def _searches(self, part: str) -> Iterator[Iterator[Chunk]]:
        """Yield the chunks that the last search has left, since slices are in the order of the file; then those of the part."""
        if part == self._searched:
            yield self._rest
        for split in self._splits(part):
            yield read(split, Storage(self.job.storage), self.job.selection.requested, Damage("skip"))

    def _splits(self, part: str) -> Iterator[Split]:
        """Yield the part of the file, then all of it: Spark's readers draw the bounds between parts elsewhere."""
        bounds, _, path = part.partition(":")
        start, size_bytes = map(int, bounds.split("+"))
        for info in self.files:
            if info.path == path:
                (whole,) = plan_splits([info], info.size_bytes)
                if info.compression is Compression.NONE and size_bytes < info.size_bytes:
                    yield replace(whole, start=start, end=start + size_bytes)
                yield whole


def _rows_in(chunk: Chunk, messages: Sequence[RefusedMessage]) -> list[dict[str, Any]]:
    """Return the rows of a chunk that may be one of these messages."""
    mask = np.isin(chunk.payload.sizes, [len(message.body) for message in messages])
    times = [message.timestamp_ns for message in messages if message.timestamp_ns is not None]
    if chunk.timestamps_ns is not None and len(times) == len(messages):
        mask &= np.isin(chunk.timestamps_ns, times)
    if not mask.any():
        return []
    rows: list[dict[str, Any]] = chunk.filter(mask).arrow(_COLUMNS).to_pylist()
    return rows


# ---- on the driver


def gather(directory: Path, returned: Sequence[bytes], path: Path) -> int:
    """Write the refused messages of all runs of a checkpoint to one file, each once, and return their number.

    `returned` are the lines that tasks have returned. If none was ever refused, no file is made. Raises CheckpointError.
    """
    found = sorted(directory.glob("refused-*.jsonl"))
    if not (returned or found):
        return 0
    count = 0
    with checkpoint_errors(f"the messages that nsqd refused cannot be written to {path}"):
        new_path = path.with_name(f"{path.name}.tmp")
        with create(new_path) as file:
            for line in _distinct(chain(returned, *map(_whole_lines, found))):
                file.write(line)
                count += 1
            file.flush()
            os.fsync(file.fileno())
        os.replace(new_path, path)
        sync_directory(path.parent)
    return count


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, except a torn one at its end."""
    with path.open("rb") as file:
        yield from (line for line in file if line.endswith(b"\n"))


def _distinct(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the first line of each message. One that was sent again after a kill was refused again."""
    seen = set()
    for line in lines:
        try:
            fields = orjson.loads(line)
        except ValueError:  # a machine failed while it was written, and its slice is not done
            continue
        key = fields["file"], fields["position"]
        if fields["position"] is None:  # it was not found again
            key = fields["file"], orjson.dumps({**fields, "error": ""})
        if key not in seen:
            seen.add(key)
            yield line


def without_body(line: bytes) -> bytes:
    fields = orjson.loads(line)
    return orjson.dumps(
        {name: fields[name] for name in fields if name not in _BODIES}, option=orjson.OPT_APPEND_NEWLINE
    )


def publish_dead_letters(
    path: str, topic: str, producers: Producers, observer: PublishObserver, batch_bytes: int
) -> None:
    """Publish the lines of the file, without the bodies, which nsqd refused. Raises NotPublished and NsqClientError."""
    with closing(TaskPublisher(producers, observer)) as publisher, open(path, "rb") as file:
        letters = (without_body(line).removesuffix(b"\n") for line in file)
        while some := list(islice(letters, _LETTERS_TOGETHER)):
            payload = Payload.of_array(pa.array(some, pa.binary()))
            for begin, end in payload.cuts(len(payload), batch_bytes):
                publisher.send(PublishBatch(topic, payload, begin, end))
        publisher.finish()
