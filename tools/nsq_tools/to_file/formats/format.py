"""What a format is: how it writes portions, and how it reads what a file of it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from nsq_tools.to_file.compression import Codec, Data
from nsq_tools.to_file.portions import Portion, Tally

# Says what its user should know; called for everything, told once.
Warn = Callable[[str], None]


class Encoded(NamedTuple):
    """Bytes that are complete in themselves; `plain_bytes` is their size before compression."""

    data: bytes
    plain_bytes: int


class Encoder(Protocol):
    """Writes one file. `header` is what it begins with."""

    @property
    def header(self) -> bytes: ...

    def encode(self, portions: Sequence[Portion]) -> Encoded:
        """Some portions, of at least one message in all."""
        ...

    def empty(self) -> bytes:
        """What makes a file whole that got no message, behind its header."""
        ...


@dataclass(slots=True)
class Survey:
    """What a file holds: `tally` of the messages up to `end`; what follows is torn."""

    end: int = 0
    tally: Tally = field(default_factory=Tally)


@dataclass(frozen=True)
class Format:
    """One format.

    suffix          of its files, in place of the default's `.log`
    codecs          what --compress may be
    overhead_bytes  about what a message takes beside its body
    encoder         (codec, level, warn) writes one file
    survey          (data, codec, start) reads one from `start` on; raises nothing, whatever the data
    is_appendable   several runs may append to one uncompressed file
    gathers         written when there is much, or at a sync: what is written at a time is a record
    convert         (source, target, codec name) makes the file of what was written; None: it is the file
    """

    name: str
    suffix: str
    codecs: tuple[str, ...]
    overhead_bytes: int
    encoder: Callable[[Codec, int, Warn], Encoder]
    survey: Callable[[Data, Codec, int], Survey]
    is_appendable: bool = False
    gathers: bool = False
    convert: Callable[[Path, Path, str], None] | None = None
