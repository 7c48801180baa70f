"""`nsqd.dat`: topics, channels and what is paused, in the JSON of Go's nsqd."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nsqd_py.diskqueue.files import sync_directory
from nsqd_py.errors import StartError
from nsqd_py.queue.topic import Topic
from nsqd_py.version import NSQ_VERSION

METADATA_FILE = "nsqd.dat"
_FEW = 100  # topics, whose names and channels json writes in a millisecond


class BadMetadata(StartError):
    """These bytes do not say which topics there are."""


@dataclass(slots=True)
class TopicEntry:
    """A topic as `nsqd.dat` knows it; `channels` by name: paused."""

    name: str
    is_paused: bool = False
    channels: dict[str, bool] = field(default_factory=dict)


def encode_metadata(topics: Iterable[Topic]) -> bytes:
    """The lasting topics and channels."""
    entries = [
        {
            "name": topic.name,
            "paused": topic.is_paused,
            "channels": [
                {"name": channel.name, "paused": channel.is_paused}
                for channel in topic.channels.values()
                if not channel.is_ephemeral
            ],
        }
        for topic in topics
        if not topic.is_ephemeral
    ]
    return _dumps({"topics": entries, "version": NSQ_VERSION}, len(entries))


def _dumps(document: dict[str, Any], topics: int) -> bytes:
    """The JSON of a few topics is written without orjson, whose import takes 12 ms of the start."""
    if topics <= _FEW:
        return json.dumps(document, separators=(",", ":")).encode()
    import orjson

    return orjson.dumps(document)


def read_metadata(path: Path) -> list[TopicEntry]:
    """What the file says; nothing when there is none.

    Raises BadMetadata when it cannot be understood, StartError when it cannot be read.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StartError(f"failed to read metadata from {path} - {error}") from error
    try:
        return [_topic_entry(entry) for entry in json.loads(data)["topics"] or ()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMetadata(f"failed to parse metadata in {path} - {error}") from error


def _topic_entry(entry: dict[str, object]) -> TopicEntry:
    channels = entry.get("channels") or []
    if not isinstance(channels, list):
        raise TypeError("channels is no list")
    return TopicEntry(
        str(entry["name"]),
        entry.get("paused") is True,
        {str(channel["name"]): channel.get("paused") is True for channel in channels},
    )


def replace_file(path: Path, data: bytes) -> None:
    """Write a new file and put it in the place of the old one, so that a crash leaves one of them. Raises OSError."""
    temporary = path.with_name(f"{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        written = os.write(descriptor, data)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes of {temporary} could be written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    sync_directory(path.parent)
