"""Frames as objects of the store, and when the next base is due."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from nsqd_py.runtime.pacing import WorkSlices
from nsqd_py.store.ownership import Owner
from nsqd_py.store.uploading.calls import StoreCalls

# One object is in memory three times while it is put.
_OBJECT_BYTES = 2 * 1024 * 1024

# When a base is due: the objects and the bytes after the last one.
_MOST_ROUNDS = 1000
_LEAST_BYTES = 16 * 1024 * 1024
_MOST_BYTES = 64 * 1024 * 1024
_PART_OF_BASE = 2


def is_far_behind(unread_bytes: int) -> bool:
    """True if a round would be larger than a base: then the log files must be objects first."""
    return unread_bytes > _MOST_BYTES


class RoundWriter:
    """Puts the frames of bases and rounds, one object after the other.

    last_round    number of the last object that is stored
    last_round_s  when it was, on the monotonic clock; 0 before the first one
    round_count, round_bytes  the objects since the last base, with it
    is_base_wanted  True from a call of want_base until the next base begins
    """

    def __init__(self, calls: StoreCalls, owner: Owner) -> None:
        self._calls = calls
        self._owner = owner
        self.last_round = 0
        self.last_round_s = 0.0
        self.round_count = 0
        self.round_bytes = 0
        self.is_base_wanted = False
        self._base_bytes = 0  # with the files that went up for it

    # ---- bases

    def is_base_due(self) -> bool:
        """True if there are so many rounds that the state must begin again."""
        most_bytes = max(_LEAST_BYTES, min(_PART_OF_BASE * self._base_bytes, _MOST_BYTES))
        is_large = self.round_count >= _MOST_ROUNDS or self.round_bytes > most_bytes
        return is_large or self.is_base_wanted

    def want_base(self) -> None:
        """Let a base be due, since an object of the last one or of its rounds is damaged."""
        self.is_base_wanted = True

    def begin_base(self) -> None:
        """Count from here: the next frames are those of a base."""
        self.round_count = 0
        self.round_bytes = 0
        self.is_base_wanted = False

    def end_base(self, file_bytes: int) -> None:
        """Let the head name the base, for which files of this size went up. Raises Superseded."""
        self._calls.ask(self._owner.move_head)
        self._base_bytes = self.round_bytes + file_bytes

    # ---- objects

    def put(self, frames: Iterable[bytes], *, is_base: bool = False) -> None:
        """Put frames as objects, the last of which has the mark; nothing if there are none. Raises Superseded."""
        slices = WorkSlices()
        pending: list[bytes] = []
        size_bytes = 0
        for frame in frames:
            if pending and size_bytes + len(frame) > _OBJECT_BYTES:
                self._put_object(pending, is_mark=False, is_base=is_base)
                is_base = False
                pending = []
                size_bytes = 0
            pending.append(frame)
            size_bytes += len(frame)
            slices.sleep_if_due()
        if pending:
            self._put_object(pending, is_mark=True, is_base=is_base)

    def _put_object(self, frames: list[bytes], *, is_mark: bool, is_base: bool) -> None:
        """Put one object, however long that takes. Raises Superseded."""
        owner = self._owner
        size_bytes = sum(map(len, frames))
        if not owner.is_settled:  # an object that an error has interrupted
            self._calls.ask(owner.settle)

        def append() -> None:
            if not owner.is_settled:  # an earlier attempt of this call
                owner.settle()
                return
            payload = b"".join(frames)
            frames.clear()  # the owner has them now, also if the store does not answer
            owner.append(payload, is_mark=is_mark, is_base=is_base)

        self._calls.ask(append)
        self.last_round = owner.next_number - 1
        self.last_round_s = monotonic()
        self.round_count += 1
        self.round_bytes += size_bytes
