"""The real side of the test against the model: consumers that report, and disks that fail."""

from __future__ import annotations

import errno
import os
from typing import Any, Protocol
from unittest import mock

from nsqd_py.protocol.frames import Part
from tests.property.model import ModelTopic
from tests.unit.fakes import FakeConsumer, World, parse_messages


class Machine(Protocol):
    """What a consumer needs of the test that it takes part in. `ids` are those seen by sequence number."""

    world: World
    model: ModelTopic
    ids: dict[int, bytes]

    def seq_of(self, body: bytes) -> int: ...


class ModelConsumer(FakeConsumer):
    """A consumer that tells the model what it is sent."""

    def __init__(self, machine: Machine, name: str, rdy: int, timeout_ns: int, room: int) -> None:
        super().__init__(machine.world, rdy, timeout_ns, room)
        self.name = name
        self._machine = machine

    def send_frames(self, parts: list[Part], size_bytes: int) -> None:
        assert self.capacity() > 0 or self.in_flight, "sent to one who is not ready"
        super().send_frames(parts, size_bytes)
        now_ns = self._machine.world.clock()
        model = self._machine.model.channels[self.name]
        for message in parse_messages(b"".join(parts)):
            seq = self._machine.seq_of(message.body)
            self._machine.ids.setdefault(seq, message.id)
            assert self._machine.ids[seq] == message.id
            model.send(seq, message.attempts, self, now_ns, now_ns + self.msg_timeout_ns)
        self.received.clear()
        assert len(self.in_flight) <= self.rdy


def broken_writes(keep: int | None) -> Any:
    """A disk that takes nothing, or `keep` bytes of a write at the most, and never all."""
    real = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        if keep is None:
            _refuse()
        return real(fd, data[: min(keep or 0, len(data) - 1)], offset)

    return mock.patch.object(os, "pwrite", pwrite)


def broken_reads() -> Any:
    """A disk that gives nothing."""
    return mock.patch.object(os, "pread", _refuse)


def _refuse(*_: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
