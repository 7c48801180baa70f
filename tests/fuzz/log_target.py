"""A start of nsqd on a topic's log in which anything may be damaged."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from nsqd_py.diskqueue.files.log_file import LogFile
from nsqd_py.diskqueue.log import TopicLog
from nsqd_py.diskqueue.records import Damaged
from nsqd_py.diskqueue.recovery import recover_file
from nsqd_py.protocol.batch import Batch, uniform_stride
from tests.fuzz.table import target
from tests.support.archives import BASE_NS, Published, TopicLogFile, mpub
from tests.unit.log_bench import append_to, close_log

_FILE_BYTES = 1 << 20
_SPACE = bytes(200)
_BODIES = ([b"one"], [b"two", b"three", b"NSQr"], [b"x" * 300], [b"NSQr" * 20], [b"y"], [b"z", b""])
_EDIT_BYTES = 3


def _log(*, is_reused: bool) -> TopicLogFile:
    log = TopicLogFile(is_reused=is_reused)
    for bodies in _BODIES:
        log.add(Published(bodies))
    return log


@target(b"\0", b"\1\0\x50\xff\1\0\x10", b"\2\3\0\1", b"\3", b"\4" + bytes(_log(is_reused=False).data))
def log_file(data: bytes) -> None:
    """The first byte says what the others are: bytes of a file, or places in a log (two bytes) and what flips there.

    A start finds only what was published, in order, and tells of the rest; the next start finds the same.
    """
    kind = data[0] if data else 0
    log = _log(is_reused=bool(kind & 1))
    content = bytearray(log.data + (_SPACE if kind & 2 else b""))
    for at in range(1, len(data) - _EDIT_BYTES + 1, _EDIT_BYTES):
        content[int.from_bytes(data[at : at + 2], "big") % len(content)] ^= data[at + 2]
    if kind & 4:
        content = bytearray(data[1:])
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, log.name)
        path.write_bytes(content)
        reported: list[str] = []
        found = _start(Path(directory), reported, b"new")
        if found is None:
            return
        if not kind & 4:
            published = iter(message.body for message in log.messages)
            assert all(body in published for body in found)
            # In a reused file, what is no record may be of the earlier file.
            assert len(found) == len(log.messages) or reported or kind & 1
        assert _start(Path(directory), reported, b"newer") == [*found, b"new"]


def _start(directory: Path, reported: list[str], publish: bytes) -> list[bytes] | None:
    """Return what is read after a start, which then publishes a message; None where the file's header is damaged."""
    (path,) = directory.glob("*.log")
    log = TopicLog(directory, "orders", _FILE_BYTES, reported.append)
    with suppress(Damaged):
        log.adopt(recover_file(LogFile.open(path), is_last=True), is_last=True)
        try:
            bodies = [batch.message(index) for batch in _batches(log) for index in range(batch.count)]
            body = mpub([publish])
            append_to(log, Batch(log.next_seq, 1, BASE_NS, 0, 1, uniform_stride(body, 1), body))
            return bodies
        finally:
            close_log(log)
    return None


def _batches(log: TopicLog) -> list[Batch]:
    found: list[Batch] = []
    while chunk := log.read(found[-1].end_seq if found else 0):
        found += chunk
    return found
