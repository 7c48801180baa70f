"""Batches of messages that any thread may answer."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager

from nsqd_py.client.consuming.lane import Lane
from nsqd_py.client.keywords import Delay
from nsqd_py.client.message import MessageBatch
from nsqd_py.protocol.incoming import Messages


class LockedBatch(MessageBatch):
    """Answers take the lock of the consumer, which the I/O thread shares, but to finish one message needs none."""

    __slots__ = ("_lock",)

    def __init__(self, lane: Lane, messages: Messages, arrived_s: float, lock: AbstractContextManager[object]) -> None:
        super().__init__(lane, messages, arrived_s)
        self._lock = lock

    def finish(self) -> None:
        with self._lock:
            super().finish()

    def finish_some(self, ids: Collection[bytes]) -> None:
        with self._lock:
            super().finish_some(ids)

    def requeue(self, delay_s: Delay | None = None, ids: Collection[bytes] | None = None, *, backoff: bool = False) -> None:
        with self._lock:
            super().requeue(delay_s, ids, backoff=backoff)

    def requeue_one(self, message_id: bytes, attempts: int, delay_s: Delay | None, *, backoff: bool) -> None:
        with self._lock:
            super().requeue_one(message_id, attempts, delay_s, backoff=backoff)

    def touch_some(self, ids: Collection[bytes]) -> None:
        with self._lock:
            super().touch_some(ids)

    def _finished_one(self) -> None:
        with self._lock:
            super()._finished_one()

    def _open_set(self) -> set[bytes]:
        with self._lock:
            return super()._open_set()
