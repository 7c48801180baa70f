"""Heads of plain publishes that came before: a client sends the same one each time, but for the length."""

from __future__ import annotations

import re

from nsqd_py.batch import SIZE_BYTES

MAX_KNOWN_BYTES = 2048
_MOST_KNOWN = 1024

_LENGTH_LINE = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([1-9][0-9]{0,8})\r\n")

# What a plain publish to /pub says: (topic, size of the body, that size as it stands in a batch).
Publish = tuple[str, int, bytes]

KNOWN: dict[bytes, Publish] = {}
_TOPICS_BY_SHAPE: dict[bytes, str] = {}


def recognise(head: bytes) -> Publish | None:
    """What a head says that differs from one that is remembered in nothing but the length of the body."""
    length = _LENGTH_LINE.search(head)
    topic_name = _TOPICS_BY_SHAPE.get(_shape(head, length)) if length is not None else None
    if length is None or topic_name is None:
        return None
    return _keep(head, topic_name, int(length[1]))


def remember(head: bytes, topic_name: str, size_bytes: int) -> None:
    """Keep a head that was found to be a plain publish of so many bytes to a topic of that valid name."""
    _keep(head, topic_name, size_bytes)
    length = _LENGTH_LINE.search(head)
    if length is not None:
        if len(_TOPICS_BY_SHAPE) >= _MOST_KNOWN:
            _TOPICS_BY_SHAPE.clear()
        _TOPICS_BY_SHAPE[_shape(head, length)] = topic_name


def _keep(head: bytes, topic_name: str, size_bytes: int) -> Publish:
    if len(KNOWN) >= _MOST_KNOWN:
        KNOWN.clear()
    publish = KNOWN[head] = topic_name, size_bytes, size_bytes.to_bytes(SIZE_BYTES, "big")
    return publish


def _shape(head: bytes, length: re.Match[bytes]) -> bytes:
    """The head without the digits of its length. No head that the parser takes has that line empty by itself."""
    return head[: length.start(1)] + head[length.end(1) :]
