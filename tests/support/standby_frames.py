"""Frames of a primary's stream, also such that no feed makes."""

from __future__ import annotations

from nsqd_py.feed.codec import BEGIN, COMMIT, PART, REMOVE, WRITE
from nsqd_py.feed.pieces import Begin, Commit, Part, Remove, TopicListing, TopicsListed, Write
from nsqd_py.standby.messages import piece_frame

_WITH_DATA = {WRITE: Write, PART: Part}
_WITHOUT = {BEGIN: Begin, COMMIT: Commit, REMOVE: Remove}


def file_frame(kind: int, name: str, offset: int = 0, data: bytes = b"") -> bytes:
    """Return the frame of a WRITE, BEGIN, PART, COMMIT or REMOVE."""
    if kind in _WITH_DATA:
        return piece_frame(_WITH_DATA[kind](name, offset, data))
    return piece_frame(_WITHOUT[kind](name))


def topic_frame(files: TopicListing) -> bytes:
    """Return the frame of a TOPIC."""
    return piece_frame(files)


def listed_frame() -> bytes:
    """Return the frame of a LISTED."""
    return piece_frame(TopicsListed())
