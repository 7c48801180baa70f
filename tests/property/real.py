"""The real side of the test against the model: consumers that report, disks that fail, and kills."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from nsqd_py.diskqueue.journals.ranges import ranges_of
from nsqd_py.protocol.frames import Part
from nsqd_py.queue.channel import Channel
from tests.property.model import DEFERRED, FINISHED, IN_FLIGHT, LOST, QUEUED, ModelTopic, Seen
from tests.unit.fakes import FakeConsumer, FakePublisher, World, parse_messages, refuse


class ModelPublisher(FakePublisher):
    """A publisher that withdraws from the model what was refused."""

    def __init__(self, topic: ModelTopic, count: int) -> None:
        super().__init__()
        self._topic = topic
        self._count = count

    def publish_failed(self, ticket: int, error: OSError) -> None:
        super().publish_failed(ticket, error)
        self._topic.withdraw(self._count)


class ModelConsumer(FakeConsumer):
    """A consumer that tells the model what it is sent.

    topic, name  the model of its topic, and the name of its channel
    on_close     called when its channel ends its connection
    """

    def __init__(
        self,
        world: World,
        topic: ModelTopic,
        name: str,
        rdy: int,
        timeout_ns: int,
        room: int,
        on_close: Callable[[ModelConsumer], None],
    ) -> None:
        super().__init__(world, rdy, timeout_ns, room)
        self.topic = topic
        self.name = name
        self._on_close = on_close

    def close(self, reason: str) -> None:
        self._on_close(self)

    def send_frames(self, parts: list[Part], size_bytes: int) -> None:
        assert self.capacity() > 0 or self.in_flight, "sent to one who is not ready"
        super().send_frames(parts, size_bytes)
        now_ns = self.topic.clock()
        model = self.topic.channels[self.name]
        for message in parse_messages(b"".join(parts)):
            seq = self.topic.seq_of(message.body)
            assert self.topic.ids.setdefault(seq, message.id) == message.id
            model.send(seq, message.attempts, self, now_ns, now_ns + self.msg_timeout_ns)
        self.received.clear()
        assert len(self.in_flight) <= self.rdy


def observe(channel: Channel) -> dict[int, Seen]:
    """What a real channel says of every message below `released`; that it says one thing of each is checked."""
    position = channel.position
    seen = {seq: [] for seq in range(position.released)}
    skipped = {seq for low, high in position.skips for seq in range(low, high)}
    for seq in set(range(position.cursor, position.released)) - skipped:
        seen[seq].append((QUEUED, 0, 0))
    runs = [
        (0, position.finished.floor, (FINISHED, 0, 0)),
        *((low, high, (FINISHED, 0, 0)) for low, high in position.finished.islands()),
        *((low, high, (LOST, 0, 0)) for low, high in ranges_of(position.lost)),
        *((low, high, (QUEUED, attempts, 0)) for low, high, attempts, _ in position.requeued),
        *(
            (low, high, (DEFERRED, attempts, due_ns))
            for due_ns, (low, high, attempts, _) in position.deferred
        ),
    ]
    for low, high, state in runs:
        for seq in range(low, high):
            seen[seq].append(state)
    for table in channel.tables:
        for seq, delivery in table.entries():
            seen[seq].append((IN_FLIGHT, delivery.attempts, 0))
    for seq, states in seen.items():
        assert len(states) == 1, f"message {seq} is {states or 'nowhere'}"
    return {seq: states[0] for seq, states in seen.items()}


def broken_writes(keep: int | None) -> Any:
    """A disk that takes nothing, or `keep` bytes of a write at the most, and never all."""
    real = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if keep is None:
            refuse()
        return real(fd, data[: min(keep or 0, len(data) - 1)], offset)

    return mock.patch.object(os, "pwrite", pwrite)


def broken_reads() -> Any:
    """A disk that gives nothing."""
    return mock.patch.object(os, "pread", refuse)


# What changes files.
_CALLS = ("pwrite", "pwritev", "write", "ftruncate", "posix_fallocate", "rename", "replace", "link", "unlink")


@contextmanager
def copied_at(number: int, directory: Path, copy: Path, keep: int) -> Iterator[None]:
    """Copy the files of a directory as a process leaves them that is killed in its `number`th change of a file.

    A write that is cut off has written `keep` bytes. There is no copy if there are fewer changes.
    """
    calls = 0

    def cut(name: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            if name == "pwrite" and keep < len(arguments[1]):
                real(arguments[0], bytes(arguments[1])[:keep], *arguments[2:])
            shutil.copytree(directory, copy)
        return real(*arguments, **named)

    with mock.patch.multiple(os, **{name: partial(cut, name, getattr(os, name)) for name in _CALLS}):
        yield
