"""The interface of a format: encoding portions, and scanning the messages in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from nsq_tools.to_file.compression import Codec, Data
from nsq_tools.to_file.portions import Portion, Tally

# Warns the user; called with the same text often, which is logged once.
Warn = Callable[[str], None]


class Encoded(NamedTuple):
    """Bytes that can be read without the bytes after them; `plain_bytes` is their size before compression."""

    data: bytes
    plain_bytes: int


class Encoder(Protocol):
    """The encoder of one file. The file begins with `header`."""

    @property
    def header(self) -> bytes: ...

    def encode(self, portions: Sequence[Portion]) -> Encoded:
        """Encode portions with at least one message."""
        ...

    def empty(self) -> bytes:
        """Return the bytes that complete a file without messages, after its header."""
        ...


@dataclass(slots=True)
class FileScan:
    """The contents of a file: a tally of the messages up to `end`. The bytes after `end` are an incomplete write."""

    end: int = 0
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True)
class Format:
    """One format.

    suffix          ending of its files, instead of `.log`
    codecs          allowed values of --compress
    overhead_bytes  approximate size of a message without its body
    encoder         (codec, level, warn) returns the encoder of one file
    scan            (data, codec, start) scans a file from `start` on; raises nothing, whatever the data
    is_appendable   True if several runs may append to one uncompressed file
    gathers         True if each write is one record, so that small writes are collected until a sync
    convert         (source, target, codec name) makes the final file from the written one; None if they are the same
    """

    name: str
    suffix: str
    codecs: tuple[str, ...]
    overhead_bytes: int
    encoder: Callable[[Codec, int, Warn], Encoder]
    scan: Callable[[Data, Codec, int], FileScan]
    is_appendable: bool = False
    gathers: bool = False
    convert: Callable[[Path, Path, str], None] | None = None
