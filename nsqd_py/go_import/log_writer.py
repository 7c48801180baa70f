"""Log files made of messages that have ids and times of their own, which nothing that is published has."""

from __future__ import annotations

import secrets
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from nsqd_py.batch import SIZE_BYTES, Batch
from nsqd_py.diskqueue.files import log_file_name
from nsqd_py.diskqueue.go_files import GoMessage
from nsqd_py.diskqueue.journal import Wait
from nsqd_py.diskqueue.records import RECORD_HEADER_BYTES, FileHeader, encode_record
from nsqd_py.go_import.repeats import Blocks
from nsqd_py.runtime import private_files

_BUFFER_BYTES = 1024 * 1024
_id_of = itemgetter(2)
_pack_size = Struct(">I").pack


class LogWriter:
    """Writes log files, message by message, each with its own id and time.

    next_seq    the number of the next message
    size_bytes  of all bodies so far
    """

    def __init__(self, folder: Path, topic: str, next_seq: int, used_id: int, max_file_bytes: int) -> None:
        self.next_seq = next_seq
        self.size_bytes = 0
        self._folder = folder
        self._topic = topic
        self._used_id = used_id
        self._max_file_bytes = max_file_bytes
        self._is_imported = True
        self._file: BinaryIO | None = None
        self._room = -1  # for the body of the next record; there is no file yet
        self._salt = 0

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def roll(self, *, is_imported: bool) -> None:
        """Begin a new file of this kind. Raises OSError."""
        self._close()
        self._is_imported = is_imported
        self._open()

    def write(self, blocks: Blocks) -> list[Wait]:
        """Write messages; which of them were tried already, as runs. Raises OSError."""
        tried: list[Wait] = []
        for messages in blocks:
            self._write_block(messages, tried)
            self._used_id = max(self._used_id, max(map(_id_of, messages), default=0))
        return tried

    def _write_block(self, messages: list[GoMessage], tried: list[Wait]) -> None:
        for timestamp_ns, attempts, message_id, body in messages:
            if attempts:
                _note_tried(tried, self.next_seq, attempts)
            sized = _pack_size(len(body)) + body
            size = len(sized)
            if size > self._room:
                self.roll(is_imported=self._is_imported)
            assert self._file is not None
            batch = Batch(self.next_seq, message_id, timestamp_ns, 0, 1, size, sized)
            self._file.write(encode_record(batch, self._salt))
            self.next_seq += 1
            self.size_bytes += size - SIZE_BYTES
            self._room -= RECORD_HEADER_BYTES + size

    def _open(self) -> None:
        self._salt = secrets.randbits(32)
        header = FileHeader(self._salt, self.next_seq, self._used_id, is_imported=self._is_imported)
        path = self._folder / log_file_name(self._topic, self.next_seq)
        self._file = private_files.create(path, _BUFFER_BYTES)
        self._room = self._max_file_bytes - self._file.write(header.encode()) - RECORD_HEADER_BYTES

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _note_tried(tried: list[Wait], seq: int, attempts: int) -> None:
    """Neighbours that were tried as often make one run."""
    low = seq
    if tried and tried[-1][1] == seq and tried[-1][3] == attempts:
        low = tried.pop()[0]
    tried.append((low, seq + 1, 0, attempts))
