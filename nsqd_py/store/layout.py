"""The names of a store's objects, its head, and the log files that are in it.

head.json                   who writes, and where its newest base begins; moves by compare-and-swap
rounds/<number, 16 hex>     what has changed, see `rounds`; created once, never replaced
files/<topic>/<...>.log     log files, byte for byte, see `StoredFile`
aside/<name>                copies of damaged objects
probe/<writer>              what the store's conditional writes were tried with
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from google_crc32c import extend

from nsqd_py.diskqueue.files.log_file import log_file_name
from nsqd_py.errors import NsqdError
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime.documents import BAD_CONTENT, checked_number, decode_fields, describe, load_member_json
from nsqd_py.runtime.one_bit import corrected, differs_by_a_bit

FORMAT = 1
HEAD_NAME = "head.json"
ROUNDS = "rounds"
FILES = "files"
ASIDE = "aside"
PROBE = "probe"
WRITER_BYTES = 8

_ROUND_NAME = re.compile(rf"{ROUNDS}/(?P<number>[0-9a-f]{{16}})")
_FILE_EPOCH = re.compile(r"-(?P<epoch>\d+)\.log$")
_CHECKSUM = "crc32c"
_OF_EARLIER = "member"  # a key that earlier versions wrote
_CHECKSUM_BEGINS = b',\n "%b": ' % _CHECKSUM.encode()
# Of a directory with rounds.
NO_HEAD = f"this is a store of nsqd whose {HEAD_NAME} is missing, so that it cannot be read"
# How a head ends that has a checksum.
_END = _CHECKSUM_BEGINS + b'"%08x"\n}\n'
_END_BYTES = len(_END % 0)
_WRONG = "its checksum is wrong"
_WRITER = re.compile(rf"[0-9a-f]{{{2 * WRITER_BYTES}}}")


class BadObject(NsqdError):
    """An object is damaged, foreign, or not the one that must be there; the text names it.

    name  of the object, where a reader goes on without it; else ""
    """

    def __init__(self, text: str, name: str = "") -> None:
        super().__init__(text)
        self.name = name


class LaterVersion(BadObject):
    """A later version of nsqd-py has written the object."""


def missing_text(name: str) -> str:
    """Return the sentence about an object that must be there, and is not."""
    return f"{name} is missing: it was deleted or lost"


def missing_rounds_text(number: int, later: int) -> str:
    """Return the sentence about the rounds from `number` up to the one before `later`, which is there."""
    name = round_name(number)
    if later - number == 1:
        return missing_text(name)
    return f"{name} to {round_name(later - 1)} are missing: they were deleted or lost"


def unreadable_round_text(number: int) -> str:
    """Return the sentence about a round that a list shows, and that is not there."""
    return f"{round_name(number)} is in the list of rounds, but cannot be read"


# ---- rounds


def has_rounds(names: Iterable[str]) -> bool:
    """True if names in the directory of the rounds are those of rounds."""
    return any(parse_round_name(f"{ROUNDS}/{name}") is not None for name in names)


def round_name(number: int) -> str:
    return f"{ROUNDS}/{number:016x}"


def parse_round_name(name: str) -> int | None:
    """Return the number in the name of a round; None if it is another name."""
    match = _ROUND_NAME.fullmatch(name)
    if match:
        return int(match["number"], 16)
    return None


def aside_name(name: str, writer: str) -> str:
    """Return the name under which a writer puts a damaged object aside."""
    return f"{ASIDE}/{name}-{writer}"


def probe_name(writer: str) -> str:
    return f"{PROBE}/{writer}"


# ---- the head


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a store.

    store   random id of the store
    epoch   number of the last claim, from 1
    writer  random id of the process that made this claim
    node    its address, for people
    base    number of the first round of the newest complete base; 0 before the first one
    closed  True if that process has stopped, and has written everything that it had

    The JSON has a checksum too. A head without one is valid: an operator may have written it. Earlier versions wrote the random
    id of the data path, `member`, which decides nothing.
    """

    store: str
    epoch: int
    writer: str
    node: str
    base: int = 0
    closed: bool = False

    @property
    def is_backup(self) -> bool:
        """True if the store was written at once: others begin with the takeover of the first claim, not with a base."""
        return self.epoch == 1 and self.base == 1 and self.closed

    def encode(self) -> bytes:
        fields = {"format": FORMAT, **asdict(self)}
        return json.dumps({**fields, _CHECKSUM: f"{_checksum_of(fields):08x}"}, indent=1).encode() + b"\n"

    @classmethod
    def corrected(cls, data: bytes) -> Head | None:
        """Return the head in damaged content of which one bit has flipped; None if more is wrong."""
        content, last = data[:-_END_BYTES], data[-_END_BYTES:]
        right = _END % extend(0, content)
        found: bytes | None = content
        if not differs_by_a_bit(last, right):
            if not last.startswith(_CHECKSUM_BEGINS):
                return None
            try:
                found = corrected(content, int(last.removeprefix(_CHECKSUM_BEGINS)[1:9], 16))
            except ValueError:
                return None
        if found is None:
            return None
        try:
            return cls.decode(found + b"\n}\n")
        except BadObject:
            return None

    @classmethod
    def decode(cls, data: bytes) -> Head:
        """Raises BadObject, and LaterVersion for an undamaged head of a later version."""
        try:
            fields = load_member_json(data)
        except BAD_CONTENT as error:
            raise BadObject(f"{HEAD_NAME} is damaged or foreign: {describe(error)}") from error
        if not isinstance(fields, dict):
            raise BadObject(f"{HEAD_NAME} is damaged or foreign: it is no JSON object")
        try:
            checksum = fields.pop(_CHECKSUM, None)
            is_right = checksum in (None, f"{_checksum_of(fields):08x}")
            if fields.pop("format") != FORMAT:
                text = f"{HEAD_NAME} was written by a later version of nsqd-py"
                raise LaterVersion(text) if is_right else BadObject(f"{text}, or is damaged: {_WRONG}")
            fields.pop(_OF_EARLIER, None)
            head = decode_fields(cls, fields)
        except BAD_CONTENT as error:
            raise BadObject(f"{HEAD_NAME} is damaged or foreign: {describe(error)}") from error
        if not _WRITER.fullmatch(head.writer) or not head.epoch:
            raise BadObject(f"{HEAD_NAME} is damaged: it names no writer")
        if not is_right:
            raise BadObject(f"{HEAD_NAME} is damaged: {_WRONG}")
        return head


def _checksum_of(fields: dict[str, Any]) -> int:
    """Return the crc32c of these fields as `Head.encode` writes them, up to the checksum."""
    checksum: int = extend(0, json.dumps(fields, indent=1).removesuffix("\n}").encode())
    return checksum


# ---- log files


class StoredFile(NamedTuple):
    """A log file in the store, or the first part of one.

    topic       of the log
    first_seq   sequence number of its first message, which names the local file
    salt        of the file's header
    size_bytes  number of bytes
    crc         crc32c of these bytes
    is_sealed   True if the local file does not grow any more, so that this is all of it
    end_seq     the number after its last message
    first_id, last_id  ids of its first and last message
    first_ns, last_ns  the earliest and the latest timestamp in it, in ns since the epoch; 0 without messages
    epoch       of the writer that stored it
    is_whole    False if it was imported, or was compacted before it was stored: it lacks published messages
    """

    topic: str
    first_seq: int
    salt: int
    size_bytes: int
    crc: int
    is_sealed: bool
    end_seq: int
    first_id: int
    last_id: int
    first_ns: int
    last_ns: int
    epoch: int
    is_whole: bool = True

    @property
    def name(self) -> str:
        """The name of the object.

        It has the epoch of the writer, so that no writer deletes late what a later one has stored.
        """
        content = f"{self.first_seq:020d}-{self.salt:08x}-{self.size_bytes}-{self.crc:08x}-{self.epoch}"
        return f"{topic_prefix(self.topic)}/{content}.log"

    @property
    def local_name(self) -> str:
        """The name of the file in a data path."""
        return log_file_name(self.topic, self.first_seq)


def parse_file_epoch(name: str, otherwise: int) -> int:
    """Return the epoch of the writer in the name of a log file, or `otherwise` if it is no such name."""
    match = _FILE_EPOCH.search(name)
    if match:
        return int(match["epoch"])
    return otherwise


def topic_of_file(name: str) -> str:
    """Return the topic in the name of a log file in the store."""
    return name.removeprefix(f"{FILES}/").partition("/")[0].removeprefix("=")


def topic_prefix(topic: str) -> str:
    """Return the prefix of the log files of a topic. `.` and `..` are topics, and no parts of a path."""
    return f"{FILES}/={topic}" if topic in (".", "..") else f"{FILES}/{topic}"


def decode_stored_file(fields: Any) -> StoredFile:
    """Return the file that a list in JSON describes. Raises BAD_CONTENT."""
    file = StoredFile._make(fields)
    if not isinstance(file.topic, str) or not is_valid_name(file.topic.encode()) or is_ephemeral(file.topic):
        raise ValueError(f"{file.topic!a:.100} is no topic with files")
    for truth in (file.is_sealed, file.is_whole):
        if not isinstance(truth, bool):
            raise TypeError(f"{truth!a:.50} is not true or false")
    for number in file[1:]:
        checked_number(number)
    return file
