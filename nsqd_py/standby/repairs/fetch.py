"""Fetches what another nsqd of the group has of a log, to repair this nsqd's files: see `fetch_server`.

It does not matter which of the two is the primary. The other side only reads bytes: this side checks each record before
it writes anything, and compares the epochs (`is_same_history`), since two histories are never merged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from nsqd_py.diskqueue.files.log_file import topic_of_log
from nsqd_py.diskqueue.journals.epochs import Epochs, decode_epochs
from nsqd_py.errors import NsqdError
from nsqd_py.runtime.documents import BAD_CONTENT, checked_number, describe, load_member_json
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.messages import FETCH, STREAM_FRAME
from nsqd_py.standby.repairs.fetch_server import FORMAT, MOST_BYTES, NodeState

_CONNECT_TIMEOUT_S = 1.0
_SILENCE_S = 10.0
_HEARTBEAT_MS = 30_000  # it may be busy with its own disk between two requests


class FetchFailed(NsqdError):
    """The other nsqd does not have what it was asked for, or its answer is not valid; the text says why."""


class RemoteFile(NamedTuple):
    """A log file of another nsqd.

    salt        of its header: a file with the same name and the same salt has the same bytes
    size_bytes  the length of the file; the end of its last record may come before
    """

    name: str
    salt: int
    size_bytes: int


class RemoteLog(NamedTuple):
    """A log of another nsqd: its epochs, none if it has no such log, and its files in order."""

    epochs: Epochs
    files: list[RemoteFile]


class RemoteEnd(NamedTuple):
    """The end of the last record of a file, and the number after its last message."""

    end_offset: int
    end_seq: int


class FetchLink:
    """A connection to another nsqd of the group, to fetch from it. Methods block this greenlet.

    They raise OSError, FollowRefused (also by an earlier version), NotMember and FetchFailed; after FetchFailed the
    connection can be used again.
    """

    def __init__(
        self,
        options: NsqdOptions,
        address: str,
        *,
        connect_timeout_s: float = _CONNECT_TIMEOUT_S,
        silence_s: float = _SILENCE_S,
    ) -> None:
        """Connect to the TCP port of an nsqd at `host:port`, and prove to each other the membership of the group.

        `options` are those of this nsqd. `silence_s` is the longest time without an answer.
        """
        from nsqd_py.standby.link import Link  # with TLS, 20 ms of a start

        self._link = Link(
            options.replace(standby_of=address),
            connect_timeout_s=connect_timeout_s,
            silence_s=silence_s,
            heartbeat_ms=_HEARTBEAT_MS,
        )
        try:
            self._caller = self._link.join(FETCH)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._link.sock.close()

    # ---- requests

    def node(self) -> NodeState:
        """Return the state of the other nsqd."""
        fields = self._ask("node")
        return NodeState(checked_number(fields["epoch"]), fields["is_complete"] is True)

    def list_log(self, topic: str) -> RemoteLog:
        """Return the files of a topic's log."""
        files: list[RemoteFile] = []
        while True:
            after = files[-1].name if files else ""
            fields = self._ask("log", topic=topic, after=after)
            try:
                found = [_remote_file(topic, each) for each in fields["files"]]
                epochs = decode_epochs(fields["epochs"])
            except BAD_CONTENT as error:
                raise FetchFailed(f"the list of {topic} is not valid: {describe(error)}") from error
            files += found
            if fields.get("is_last") is not False or not found:
                return RemoteLog(epochs, files)

    def list_logs(self) -> Iterator[tuple[str, RemoteLog]]:
        """Yield the topics and logs of the other nsqd, in order."""
        after = ""
        is_last = False
        while not is_last:
            fields = self._ask("logs", after=after)
            try:
                logs = [
                    (
                        str(topic),
                        RemoteLog(decode_epochs(epochs), [_remote_file(topic, each) for each in files]),
                    )
                    for topic, epochs, files in fields["logs"]
                ]
            except BAD_CONTENT as error:
                raise FetchFailed(f"the list of logs is not valid: {describe(error)}") from error
            yield from logs
            is_last = fields.get("is_last") is not False or not logs
            after = logs[-1][0] if logs else ""

    def end_of(self, file: RemoteFile) -> RemoteEnd:
        """Return the end of a file. The other side walks from record to record for that, and checks no body."""
        fields = self._ask("end", name=file.name, salt=file.salt)
        try:
            return RemoteEnd(checked_number(fields["end_offset"]), checked_number(fields["end_seq"]))
        except BAD_CONTENT as error:
            raise FetchFailed(f"the end of {file.name} is not valid: {describe(error)}") from error

    def fetch_bytes(self, file: RemoteFile, offset: int, size: int) -> bytes:
        """Return these bytes of a file; fewer only at its end. More than MOST_BYTES are `pieces`."""
        self._request("bytes", name=file.name, salt=file.salt, offset=offset, size=min(size, MOST_BYTES))
        kind, data = self._link.response()
        if kind != STREAM_FRAME:
            raise FetchFailed(_error_of(data))
        if len(data) > size:
            raise FetchFailed(f"{len(data)} bytes of {file.name}, and {size} were asked for")
        return data

    def pieces(self, file: RemoteFile, offset: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `offset` to `end` in pieces, in order; fewer only at the end of the file."""
        while offset < end:
            data = self.fetch_bytes(file, offset, min(end - offset, MOST_BYTES))
            if not data:
                return
            yield data
            offset += len(data)

    # ---- the connection

    def _request(self, kind: str, **fields: object) -> None:
        document = json.dumps({"format": FORMAT, "fetch": kind, **fields}).encode()
        self._link.send_document(self._caller, document)

    def _ask(self, kind: str, **fields: object) -> dict[str, Any]:
        self._request(kind, **fields)
        _, data = self._link.response()
        try:
            answer = load_member_json(data)
        except (ValueError, RecursionError) as error:
            raise FetchFailed("the answer is not JSON") from error
        if not isinstance(answer, dict) or "error" in answer:
            raise FetchFailed(_error_of(data))
        return answer


def is_same_history(mine: Epochs, theirs: Epochs) -> bool:
    """True if both logs are in the same epoch: then each file with one name and one salt has the same records in both."""
    return bool(mine) and mine[-1:] == theirs[-1:]


def _error_of(data: bytes) -> str:
    try:
        return str(load_member_json(data)["error"])[:500]
    except BAD_CONTENT:
        return "the answer is not valid"


def _remote_file(topic: str, fields: Any) -> RemoteFile:
    """Decode a file in an answer. Raises BAD_CONTENT."""
    name, salt, size_bytes = fields
    if topic_of_log(name) != topic:
        raise ValueError(f"{name!a:.50} is no file of {topic}")
    return RemoteFile(name, checked_number(salt), checked_number(size_bytes))
