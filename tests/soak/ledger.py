"""Which messages nsqd acknowledged, and which each channel received: one bit a message, so that it stays small."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

LONGEST_BODY_BYTES = 3000
_STEP = 37


class Bits:
    """A set of small numbers."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, number: int) -> bool:
        """Add a number; True if it was not in the set."""
        place, bit = number >> 3, 1 << (number & 7)
        if place >= len(self._bytes):
            self._bytes.extend(bytes(place + 1 - len(self._bytes)))
        is_new = not self._bytes[place] & bit
        self._bytes[place] |= bit
        return is_new

    def __len__(self) -> int:
        return int.from_bytes(self._bytes, "little").bit_count()

    def without(self, other: Bits) -> Iterator[int]:
        """Yield the numbers that are not in `other`, in rising order."""
        for place, byte in enumerate(self._bytes):
            rest = byte & ~(other._bytes[place] if place < len(other._bytes) else 0)
            for bit in range(8):
                if rest >> bit & 1:
                    yield place * 8 + bit


def body_of(number: int) -> bytes:
    """Return the body of a message: its number, and filler of a size that follows from the number."""
    return b"%d " % number + b"x" * (number * _STEP % LONGEST_BODY_BYTES)


class TopicLedger:
    """The messages of one topic. Any thread may use it.

    repeated  how many messages channels received once more
    strange   bodies that nobody published
    """

    def __init__(self, name: str, channels: Iterable[str]) -> None:
        self.name = name
        self.acknowledged = Bits()
        self.received = {channel: Bits() for channel in channels}
        self.published = 0
        self.repeated = 0
        self.strange: list[bytes] = []
        self._lock = threading.Lock()

    def take_numbers(self, count: int) -> range:
        """Return numbers for new messages."""
        with self._lock:
            self.published += count
            return range(self.published - count, self.published)

    def acknowledge(self, numbers: Sequence[int]) -> None:
        """Note that nsqd answered OK for these messages."""
        with self._lock:
            for number in numbers:
                self.acknowledged.add(number)

    def receive(self, channel: str, body: bytes) -> None:
        """Note that a consumer of the channel received this message and is about to finish it."""
        number = body.partition(b" ")[0]
        with self._lock:
            if not number.isdigit() or int(number) >= self.published or body_of(int(number)) != body:
                self.strange.append(body[:100])
            elif not self.received[channel].add(int(number)):
                self.repeated += 1

    def lost(self, channel: str) -> list[int]:
        """Return the messages that were acknowledged and that the channel never received."""
        with self._lock:
            return list(self.acknowledged.without(self.received[channel]))
