"""Answers what another nsqd of the group asks about the logs of this one: their epochs, their files, and bytes of these.

A member that proved itself for the purpose FETCH sends requests, one at a time, each as a signed document of STANDBY.
It may be a primary that asks its standby, or the reverse. The answers are read from the data path, in a thread, and
are bounded, so that a request costs no more memory than the longest answer. A document is JSON with `format` 1 and:

    {"fetch": "node"}                                    {"epoch", "is_complete"}
    {"fetch": "log", "topic", "after"}                   {"epochs", "files": [[name, salt, size_bytes]], "is_last"}
    {"fetch": "logs", "after"}                           {"logs": [[topic, epochs, files]], "is_last"}
    {"fetch": "end", "name", "salt"}                     {"end_offset", "end_seq"}
    {"fetch": "bytes", "name", "salt", "offset", "size"} a frame of type 3 with the bytes; fewer only at the end of the file

`after` is the name of the last file, or of the last topic, of the answer before. The salt names the version of a file:
if there is another one by now, or none, the answer is {"error"}. The sender does not check the records that it sends: the
receiver does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import gevent

from nsqd_py.diskqueue.files.log_file import LogFile, topic_of_log
from nsqd_py.diskqueue.journals.epochs import Epochs
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, Damaged, FileHeader
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.errors import Invalid
from nsqd_py.protocol import frames
from nsqd_py.protocol.names import is_valid_name
from nsqd_py.runtime.documents import BAD_CONTENT, checked_number, describe, load_member_json
from nsqd_py.runtime.private_files import open_file
from nsqd_py.runtime.threads import in_thread
from nsqd_py.standby.messages import stream_frame

FORMAT = 1
MOST_BYTES = 1024 * 1024
_FILES_AT_ONCE = 1000
_MOST_CLIENTS = 16


class NodeState(NamedTuple):
    """The state of an nsqd that answers.

    epoch        in which it was promoted; 0 if it never was a standby
    is_complete  False while its first copy of another nsqd is not complete
    """

    epoch: int
    is_complete: bool


# A frame, or what encodes it in the event loop.
_Answer: TypeAlias = "bytes | Callable[[], bytes]"


class _NotHere(Exception):
    """This data path does not have what was asked for; the text says why."""


@dataclass(eq=False, repr=False)
class FetchServer:
    """Answers the requests of members.

    _state      returns the state of now
    _epochs_of  returns the epochs of a topic's log; none if there is no such log.
    """

    _directory: Path
    _threadpool: Any
    _state: Callable[[], NodeState]
    _epochs_of: Callable[[str], Epochs]
    _running: dict[Any, Any] = field(default_factory=dict)  # greenlets by client

    def answer(self, client: Any, document: bytes) -> None:
        """Answer a request soon. Raises Invalid."""
        work = self._work(document)
        if client in self._running:
            raise Invalid("cannot STANDBY: the request before is not answered yet")
        if len(self._running) >= _MOST_CLIENTS:
            raise Invalid(f"cannot STANDBY: {_MOST_CLIENTS} members fetch already")
        self._running[client] = gevent.spawn(self._answer, client, work)

    def forget(self, client: Any) -> None:
        """Forget a connection that has ended. What a thread reads for it is dropped."""
        self._running.pop(client, None)

    def _answer(self, client: Any, work: Callable[[], _Answer]) -> None:
        try:
            answer = in_thread(self._threadpool, work)
        except (_NotHere, OSError, Damaged) as error:
            answer = _json_frame(error=str(error))
        if self._running.pop(client, None) is not None and not client.closed:
            client.send(answer if isinstance(answer, bytes) else answer())

    def _work(self, document: bytes) -> Callable[[], _Answer]:
        """Return a function that answers a request, in a thread. Raises Invalid."""
        try:
            request = load_member_json(document)
            if request["format"] != FORMAT:
                raise ValueError(f"format {request['format']!a:.20}, not {FORMAT}")
            kind = request["fetch"]
            if kind == "node":
                return partial(_json_frame, **self._state()._asdict())
            if kind == "log":
                topic = _topic(request["topic"])
                return partial(self._log, topic, self._epochs_of(topic), str(request["after"]))
            if kind == "logs":
                return partial(self._logs, str(request["after"]))
            if kind not in ("end", "bytes"):
                raise ValueError(f"the kind {kind!a:.20} is unknown")
            file = _log_name(request["name"]), checked_number(request["salt"])
            if kind == "end":
                return partial(self._end, *file)
            offset = checked_number(request["offset"])
            size = checked_number(request["size"])
            return partial(self._bytes, *file, offset, min(size, MOST_BYTES))
        except BAD_CONTENT as error:
            raise Invalid(f"cannot STANDBY: the request is not valid: {describe(error)}") from error

    # ---- in a thread

    def _log(self, topic: str, epochs: Epochs, after: str) -> bytes:
        names = sorted(
            name for name in os.listdir(self._directory) if name > after and topic_of_log(name) == topic
        )
        files = self._versions(names[:_FILES_AT_ONCE])
        return _json_frame(epochs=epochs, files=files, is_last=len(names) <= _FILES_AT_ONCE)

    def _logs(self, after: str) -> _Answer:
        by_topic: dict[str, list[str]] = {}
        for name in sorted(os.listdir(self._directory)):
            topic = topic_of_log(name)
            if topic is not None and topic > after:
                by_topic.setdefault(topic, []).append(name)
        logs = []
        count = 0
        for topic in sorted(by_topic):
            if count >= _FILES_AT_ONCE:
                break
            count += len(by_topic[topic])
            logs.append((topic, self._versions(by_topic[topic])))
        is_last = len(logs) == len(by_topic)

        def encode() -> bytes:
            with_epochs = [(topic, self._epochs_of(topic), files) for topic, files in logs]
            return _json_frame(logs=with_epochs, is_last=is_last)

        return encode

    def _versions(self, names: list[str]) -> list[tuple[str, int, int]]:
        files = []
        for name in names:
            with suppress(FileNotFoundError, Damaged):  # it was dropped in the meantime; no one can use it
                descriptor, header = self._open(name)
                files.append((name, header.salt, os.fstat(descriptor).st_size))
                os.close(descriptor)
        return files

    def _open(self, name: str) -> tuple[int, FileHeader]:
        """Return the descriptor of a log file, and its header. Raises OSError and Damaged."""
        descriptor = open_file(self._directory / name, os.O_RDONLY)
        try:
            return descriptor, FileHeader.decode(os.pread(descriptor, FILE_HEADER_BYTES, 0))
        except BaseException:
            os.close(descriptor)
            raise

    def _open_version(self, name: str, salt: int) -> int:
        """Return the descriptor of this version of a file. Raises OSError, Damaged and _NotHere."""
        descriptor, header = self._open(name)
        if header.salt != salt:
            os.close(descriptor)
            raise _NotHere(f"{name} is another version here")
        return descriptor

    def _end(self, name: str, salt: int) -> bytes:
        os.close(self._open_version(name, salt))
        file = LogFile.open(self._directory / name, os.O_RDONLY)
        try:
            recover_file(file, is_last=False)
            return _json_frame(end_offset=file.end_offset, end_seq=file.end_seq)
        finally:
            file.close()

    def _bytes(self, name: str, salt: int, offset: int, size: int) -> bytes:
        descriptor = self._open_version(name, salt)
        try:
            data = os.pread(descriptor, size, offset)
        finally:
            os.close(descriptor)
        return stream_frame(data)


def _topic(value: object) -> str:
    if not isinstance(value, str) or not is_valid_name(value.encode()):
        raise ValueError(f"{value!a:.50} is no topic")
    return value


def _log_name(value: object) -> str:
    """Return the name of a log file, which leads nowhere else. Raises ValueError."""
    topic = topic_of_log(value) if isinstance(value, str) else None
    if topic is None or not is_valid_name(topic.encode()):
        raise ValueError(f"{value!a:.50} is no log file")
    return str(value)


def _json_frame(**fields: object) -> bytes:
    return frames.response(json.dumps(fields).encode())
