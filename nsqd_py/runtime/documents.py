"""Checks of documents that other programs may have written: fields of JSON, JSON of other machines, messages as JSON lines, and
frames of zstd.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields as fields_of
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# What decoding raises if the content is not the expected one.
BAD_CONTENT = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError)

# A value costs up to 200 bytes of memory, but only two bytes of JSON. Statistics of an nsqd have 30 bytes for each.
MAX_VALUES = 1_000_000
# The nsqds that are used of one answer of an nsqlookupd: ours lists those first that registered first. To connect to 10,000
# stops a consumer for 10 s, to list them nsqadmin for 2 s.
MOST_NSQDS = 2000
TOO_MANY_NSQDS = f"names {MOST_NSQDS} nsqds or more, and only the first {MOST_NSQDS} are used"
_COUNTED_FROM_BYTES = MAX_VALUES  # a shorter document cannot hold more than MAX_VALUES
_SLICE_BYTES = 1 << 20
_VALUE_STARTS = (b",", b"[", b"{")

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
JSON_BLANKS = b" \t\r\n"
_MESSAGE_START = re.compile(rb'\{\s*"timestamp"\s*:\s*-?\d+\s*,\s*"id"\s*:\s*"')

_ZSTD_BLOCK_BYTES = 128 * 1024  # the most that a block has when decompressed
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RLE_BLOCK = 1


def describe(error: Exception) -> str:
    """Return one line about an error of `BAD_CONTENT`."""
    return f"{type(error).__name__}: {str(error)[:100]!a}"


def checked_number(value: object) -> int:
    """Return a number of an epoch or a message, a time in ns, or an offset. Raises ValueError if it is not one."""
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!a:.50} is no number from 0 to 2**63 - 1")
    return value


def decode_fields(make: Callable[..., T], fields: Mapping[str, Any]) -> T:
    """Return a dataclass with these fields. Raises BAD_CONTENT, also if one has another type than the declared one."""
    made = make(**fields)
    for field in fields_of(made):  # type: ignore[arg-type]
        value = getattr(made, field.name)
        if field.type in ("int", "bool", "str") and type(value).__name__ != field.type:
            raise TypeError(f"{field.name} must be {field.type}, got {value!a:.50}")
        if isinstance(value, int):
            checked_number(value)
        elif isinstance(value, str):
            value.encode()  # a lone surrogate fails
    return made


# ---- JSON from another machine. Its number of values is limited before it is parsed, which limits the memory.


class TooManyValues(ValueError):
    """JSON that would take too much memory."""


def load_foreign_json(body: bytes, pace: Callable[[Iterable[int]], Iterable[int]] = iter) -> Any:
    """Return the document. Raises ValueError if `body` is not JSON, and TooManyValues if it has more than MAX_VALUES.

    `pace` returns the same numbers, and may let others work between two of them: values are counted 2 ms at a time.
    """
    if len(body) > _COUNTED_FROM_BYTES and _has_too_many_values(body, pace):
        raise TooManyValues(f"the answer has more than {MAX_VALUES} values")
    try:
        import orjson  # here, so that the client library works where it is not installed
    except ModuleNotFoundError:
        return _loads_slowly(body)
    return orjson.loads(body)


def _loads_slowly(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("the answer has too many levels") from error


def _has_too_many_values(body: bytes, pace: Callable[[Iterable[int]], Iterable[int]]) -> bool:
    """True if there are more than MAX_VALUES commas and brackets. Those inside strings count too."""
    count = 0
    for begin in pace(range(0, len(body), _SLICE_BYTES)):
        count += sum(body.count(mark, begin, begin + _SLICE_BYTES) for mark in _VALUE_STARTS)
        if count > MAX_VALUES:
            return True
    return False


def load_member_json(body: bytes) -> Any:
    """Return the document of another nsqd. Raises ValueError if it is not JSON in UTF-8, or RecursionError.

    Half of a surrogate pair is an error too: it could be written to no log, file or answer.
    """
    text = body.decode()
    document = json.loads(text)
    if "\\ud" in text.lower():
        json.dumps(document, ensure_ascii=False).encode()
    return document


# ---- messages as JSON lines, which nsq-to-file writes, and which another program may have written again


def begins_with_message(head: bytes) -> bool:
    """True if the first line of a file that is not blank is an object with the keys of a message.

    If the line is longer than `head`: if it begins as nsq-to-file writes it.
    """
    import orjson  # here, so that the client library works where it is not installed

    line, newline, _ = head.removeprefix(BYTE_ORDER_MARK).lstrip(JSON_BLANKS).partition(b"\n")
    if _MESSAGE_START.match(line):
        return True
    if not newline or not line.startswith(b"{"):
        return False
    try:
        keys = orjson.loads(line).keys()
    except orjson.JSONDecodeError:
        return False
    return {"timestamp", "id"} <= keys and bool({"body", "body_base64"} & keys)


# ---- zstd (RFC 8878)


def zstd_frame_end(data: Any, start: int) -> int | None:
    """Return the end of the frame in bytes or an mmap that begins at `start`, or None if there is no complete frame."""
    frame = zstd_frame(data, start)
    if frame is not None:
        return frame.end
    return None


class ZstdFrame(NamedTuple):
    """A complete frame: its end in the file, and the most bytes that it can have when decompressed."""

    end: int
    most_bytes: int


def zstd_frame(data: Any, start: int) -> ZstdFrame | None:
    """Return the frame in bytes or an mmap that begins at `start`, or None if there is no complete frame."""
    if data[start : start + 4] != _ZSTD_MAGIC or len(data) < start + 5:
        return None
    descriptor = data[start + 4]
    is_single = bool(descriptor & 0x20)
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if is_single else 0)
    position: int | None = start + 5 + (not is_single) + _DICTIONARY_BYTES[descriptor & 3] + size_bytes
    is_last = False
    blocks = 0
    while not is_last and position is not None:
        is_last, position = _zstd_block(data, position)
        blocks += 1
    if position is None:
        return None
    end = position + (4 if descriptor & 4 else 0)
    if end <= len(data):
        return ZstdFrame(end, blocks * _ZSTD_BLOCK_BYTES)
    return None


def _zstd_block(data: Any, position: int) -> tuple[bool, int | None]:
    """Return True for the last block of a frame, and the end of the block, which is None if it is incomplete."""
    header = int.from_bytes(data[position : position + 3], "little")
    if header >> 1 & 3 == _RLE_BLOCK:
        size = 1
    else:
        size = header >> 3
    end = position + 3 + size
    return bool(header & 1), end if end <= len(data) else None
