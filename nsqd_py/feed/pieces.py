"""The pieces of a feed, and what its reader has already."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nsqd_py.diskqueue.journals.epochs import Epochs

# The checksum of an offered file covers this many bytes before its end.
CHECKED_BYTES = 4096


class Write(NamedTuple):
    """Write the bytes at this offset of a file, which may be new."""

    name: str
    offset: int
    data: bytes


class Begin(NamedTuple):
    """Begin a new version of a file."""

    name: str


class Part(NamedTuple):
    """Write the bytes to the new version that has begun."""

    name: str
    offset: int
    data: bytes


class Commit(NamedTuple):
    """Replace the file by the new version."""

    name: str


class Remove(NamedTuple):
    """Remove a file."""

    name: str


@dataclass
class TopicListing:
    """The files that nsqd has of a topic.

    epochs    of the log; none if the topic was deleted
    next_seq  the number of the next message of its log
    files     the offset from which the feed has each log file; 0: all of it
    journals  the names of the journals of its channels
    only_stored  the number of its unfinished messages that no file of nsqd has, but its store
    store     URL of that store; empty without such messages
    """

    topic: str
    epochs: Epochs = ()
    next_seq: int = 0
    files: dict[str, int] = field(default_factory=dict)
    journals: list[str] = field(default_factory=list)
    only_stored: int = 0
    store: str = ""


class TopicsListed(NamedTuple):
    """The end of the list of topics: there are no others."""


FilePiece = Write | Begin | Part | Commit | Remove
Piece = FilePiece | TopicListing | TopicsListed


# ---- what a reader has already


class OfferedFile(NamedTuple):
    """A log file of the reader: salt of its header, bytes that it has, and the checksum of the last of these."""

    salt: int
    end_offset: int
    checksum: int


@dataclass
class OfferedLog:
    """The part of a log that the reader has: its epochs, and its files by name."""

    epochs: Epochs = ()
    files: dict[str, OfferedFile] = field(default_factory=dict)
