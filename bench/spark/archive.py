"""An archive as nsq-to-file writes it with --format=framed: messages of 200 bytes of JSON, 2500 in a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.wire import BODY_BYTES, TOPIC
from nsqd_py.diskqueue.messages import Messages, encode_messages
from nsqd_py.diskqueue.records import FileHeader

PER_RECORD = 2500
_SALT = 0x5EED
_START_NS = 1_700_000_000_000_000_000
_STEP_NS = 10_000
# One message in so many is an error: for predicates.
ERRORS_EVERY = 10


@dataclass(frozen=True)
class Archive:
    """One file; all its messages are of the topic TOPIC."""

    path: Path
    messages: int


def write_archive(path: Path, messages: int) -> Archive:
    """Of at least so many messages. Its records differ in their times only."""
    bodies = [_body(number) for number in range(PER_RECORD)]
    ids = [b"%016x" % number for number in range(PER_RECORD)]
    attempts = [1] * PER_RECORD
    with path.open("wb") as file:
        file.write(FileHeader(_SALT, 0, 0).encode())
        for first in range(0, messages, PER_RECORD):
            start_ns = _START_NS + first * _STEP_NS
            times_ns = range(start_ns, start_ns + PER_RECORD * _STEP_NS, _STEP_NS)
            columns = Messages(TOPIC, "archive", "127.0.0.1:4150", times_ns, attempts, ids, bodies)
            file.write(encode_messages(columns, first, _SALT))
    return Archive(path, -(-messages // PER_RECORD) * PER_RECORD)


def _body(number: int) -> bytes:
    level = "info" if number % ERRORS_EVERY else "error"
    text = f'{{"user":{{"id":{number % 100}}},"level":"{level}","number":{number},"text":"'
    return f'{text:x<{BODY_BYTES - 2}}"}}'.encode()
