"""The topics of a soak, and their histories.

A soak has millions of messages. The history of a topic has chapters: all operations on a message go to the chapter of
its number, so that the verdict needs the memory of one chapter, and the clients need none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.ledger import History, Verdict, judge

LONGEST_BODY_BYTES = 3000
PER_CHAPTER = 20_000
HISTORY_SUFFIX = ".jsonl"
_STEP = 37


def body_of(number: int) -> bytes:
    """Return the body of a message: its number, and filler of a size that follows from the number."""
    return b"%d " % number + b"x" * (number * _STEP % LONGEST_BODY_BYTES)


@dataclass
class Publish:
    """A publish that is under way."""

    topic: SoakTopic
    bodies: Sequence[bytes]
    chapter: History
    number: int

    def ok(self) -> None:
        self.chapter.ok(self.number)

    def failed(self, error: object) -> None:
        """Note that it was refused, or that its answer did not come."""
        self.chapter.unknown(self.number, error)


class SoakTopic:
    """One topic. Any thread may use it.

    published  how many messages were sent, whatever the answer
    """

    def __init__(self, directory: Path, name: str, channels: Iterable[str]) -> None:
        self.name = name
        self.channels = tuple(channels)
        self.published = 0
        self._directory = directory
        self._next_number = 0
        self._chapters: list[History] = []
        self._lock = threading.Lock()

    def sending(self, count: int) -> Publish:
        """Note the publish of new messages, which is about to be sent. The clients of the library may send it again."""
        with self._lock:
            chapter, first = self._take(count)
        bodies = [body_of(number) for number in range(first, first + count)]
        return Publish(self, bodies, chapter, chapter.sending(self.name, bodies, resends=True))

    def receive(self, channel: str, body: bytes) -> None:
        """Note that a consumer of the channel received this message and is about to finish it."""
        number = body.partition(b" ")[0]
        with self._lock:
            index = int(number) // PER_CHAPTER if number.isdigit() else len(self._chapters)
            chapter = self._chapters[min(index, len(self._chapters) - 1)]
        chapter.delivered(self.name, channel, body)

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdict on each chapter."""
        for chapter in self._chapters:
            yield judge(chapter)

    def _take(self, count: int) -> tuple[History, int]:
        """Return the chapter and the first number of new messages. All of them are in one chapter."""
        first = self._next_number
        if (first + count - 1) // PER_CHAPTER >= len(self._chapters):
            first = len(self._chapters) * PER_CHAPTER
            self._chapters.append(self._new_chapter())
        self._next_number = first + count
        self.published += count
        return self._chapters[-1], first

    def _new_chapter(self) -> History:
        chapter = History(self._directory / f"{self.name}-{len(self._chapters)}{HISTORY_SUFFIX}")
        chapter.created(self.name, *self.channels)
        return chapter
