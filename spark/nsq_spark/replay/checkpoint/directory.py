"""A checkpoint: the directory of a job, so that a later run goes on where the last one ended.

    job.json   the job, its times, and the files that its first run found
    complete   exists once all was sent
    lock       is locked while a driver uses the directory

and the files of each run, see `ledger`.

A job is about the files of its first run, at the size that they had then: what is written to the archive later is not
sent. All executors have to see the directory. Without --checkpoint, a temporary directory has the ledgers.
"""

from __future__ import annotations

import fcntl
import secrets
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, TypeAlias

import orjson
from google_crc32c import value as crc32c

from nsq_spark.archive.splits import ArchiveError, Compression, FileInfo, Format
from nsq_spark.archive.storage import Storage, local_path
from nsq_spark.replay.checkpoint.ledger import Acknowledged, Ledgers, read_ledgers, stop_path, touch
from nsq_spark.replay.job import SHARED, CheckpointError, Job, checkpoint_errors
from nsqd_py.diskqueue.files.log_file import replace_file, sync_directory
from nsqd_py.runtime.documents import BAD_CONTENT, describe
from nsqd_py.runtime.private_files import open_file

Document: TypeAlias = dict[str, Any]

_VERSION = 5
_HEAD = "head_crc32c"
_HEAD_BYTES = 4096


@dataclass(eq=False)
class Checkpoint:
    """An open directory. Methods raise CheckpointError if it cannot be written.

    job, files    as of the first run
    earlier       what earlier runs did; `is_complete`: nothing is left to do
    ledgers       of this run
    """

    directory: Path
    job: Job
    files: Sequence[FileInfo]
    earlier: Acknowledged
    ledgers: Ledgers
    is_complete: bool
    _document: Document
    _lock: FileIO

    @property
    def size_bytes(self) -> int:
        return sum(info.size_bytes for info in self.files)

    def remember_schema(self, schema: str) -> None:
        """Write down the types that Spark inferred, so that later runs choose the same messages."""
        if schema and self._document.get("json_schema") != schema:
            self._document["json_schema"] = schema
            with _errors(self.directory):
                _write_document(self.directory, self._document)

    def completed(self) -> None:
        with _errors(self.directory):
            touch(self.directory / "complete")
            sync_directory(self.directory)

    def forget(self) -> None:
        """Let another job use the directory: no message matched. Ledgers go first, or that job would take them for its own."""
        with _errors(self.directory):
            for path in (*_ledgers(self.directory), self.directory / "job.json"):
                path.unlink(missing_ok=True)

    def forget_unless_begun(self) -> None:
        """Let another job use the directory if no task has begun."""
        if not _ledgers(self.directory):
            self.forget()

    def close(self) -> None:
        """Let another driver use the directory."""
        self._lock.close()


# ---- opening


def has_checkpoint(directory: str) -> bool:
    return Path(local_path(directory), "job.json").exists()


def open_checkpoint(directory: str, job: Job, files: Sequence[FileInfo]) -> Checkpoint:
    """Open or begin a checkpoint.

    Raises CheckpointError: it belongs to another job, it is in use, or a file has changed.
    """
    path = Path(local_path(directory))
    try:
        with _errors(path):
            path.mkdir(parents=True, exist_ok=True)
            lock = FileIO(path / "lock", "a", opener=partial(open_file, mode=0o644))
            try:
                return _opened(path, job, files, lock)
            except BaseException:
                lock.close()
                raise
    except BAD_CONTENT as error:
        raise CheckpointError(
            f"the checkpoint {path} has content that spark-replay does not write: {describe(error)}"
        ) from error


def _errors(directory: Path) -> AbstractContextManager[None]:
    return checkpoint_errors(f"the checkpoint {directory} cannot be used")


def _ledgers(directory: Path) -> list[Path]:
    return list(directory.glob("acks-*.log"))


def _opened(directory: Path, job: Job, files: Sequence[FileInfo], lock: FileIO) -> Checkpoint:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(f"the checkpoint {directory} is in use by another spark-replay") from None
    document = _document(directory)
    last_run = _stopped_run(directory)
    ledgers = _ledgers(directory)
    earlier = read_ledgers(ledgers)
    if document:
        _check_job(directory, document["identity"], job)
        _check_files(document["files"], Storage(job.storage))
    elif ledgers:
        raise CheckpointError(
            f"the checkpoint {directory} has no job.json any more; use another directory, or delete this one"
        )
    else:
        document = _first_document(job, files)
        _write_document(directory, document)
    selection = job.selection
    requested = replace(selection.requested, start_ns=document["start_ns"], end_ns=document["end_ns"])
    schema = document.get("json_schema") or selection.json_schema
    return Checkpoint(
        directory,
        replace(job, selection=replace(selection, requested=requested, json_schema=schema)),
        [_file_info(**fields) for fields in document["files"]],
        earlier,
        Ledgers(directory, last_run + 1, document["token"], bool(job.checkpoint)),
        (directory / "complete").exists(),
        document,
        lock,
    )


def _stopped_run(directory: Path) -> int:
    """Return the number of the last run, or 0. Its driver has ended, and tasks that it has left behind are asked to."""
    runs = []
    for path in (*_ledgers(directory), *directory.glob("stop-*")):
        _, number = path.name.split("-")[:2]
        runs.append(int(number))
    if runs:
        touch(stop_path(directory, max(runs)))
    return max(runs, default=0)


# ---- job.json


def _document(directory: Path) -> Document | None:
    try:
        document: Document = orjson.loads((directory / "job.json").read_bytes())
    except FileNotFoundError:
        return None
    if document.get("version") != _VERSION:
        raise CheckpointError(
            f"the checkpoint {directory} is of another version of spark-replay: use that one, or delete it"
        )
    return document


def _write_document(directory: Path, document: Document) -> None:
    replace_file(directory / "job.json", orjson.dumps(document), mode=SHARED)


def _first_document(job: Job, files: Sequence[FileInfo]) -> Document:
    storage = Storage(job.storage)
    requested = job.selection.requested
    heads: list[int | None] = [None] * len(files)
    if job.checkpoint:  # else no later run asks for it
        heads = [_head_checksum(info.path, info.size_bytes, storage) for info in files]
    return {
        "version": _VERSION,
        "token": secrets.token_hex(8),
        "identity": job.identity(),
        "start_ns": requested.start_ns,
        "end_ns": requested.end_ns,
        "files": [{**asdict(info), _HEAD: head} for info, head in zip(files, heads, strict=True)],
    }


def _file_info(head_crc32c: int | None, format: str, compression: str, **fields: Any) -> FileInfo:
    return FileInfo(**fields, format=Format(format), compression=Compression(compression))


def _head_checksum(path: str, size_bytes: int, storage: Storage) -> int | None:
    """Return the checksum of the first bytes of a file that had this size; None if it cannot be read."""
    try:
        with storage.open(path) as file:
            return int(crc32c(file.read_at(0, min(size_bytes, _HEAD_BYTES))))
    except (ArchiveError, OSError):
        return None


def _check_job(directory: Path, theirs: Document, job: Job) -> None:
    for name, value in orjson.loads(orjson.dumps(job.identity())).items():
        if theirs.get(name) != value:
            was = _shown(theirs.get(name))
            is_now = _shown(value)
            raise CheckpointError(
                f"the checkpoint {directory} is of another job: its {name} is {was}, not {is_now}; use another directory, "
                "or delete this one"
            )


def _shown(value: object) -> str:
    """Return a value of a job's identity as the error says it."""
    if value in (None, "", []):
        return "not given"
    return str(value)


def _check_files(files: Iterable[Document], storage: Storage) -> None:
    for fields in files:
        found = _head_checksum(fields["path"], fields["size_bytes"], storage)
        if None not in (found, fields[_HEAD]) and found != fields[_HEAD]:
            raise CheckpointError(
                f"{fields['path']} is another file than when the job began; use a new checkpoint"
            )
