"""What is said of a replay while it runs. Pure: time comes with the progress."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from nsq_spark.replay.command.figures import duration_text, size_text
from nsq_spark.replay.running import Progress

_WINDOW_S = 5.0


class _Sample(NamedTuple):
    seconds: float
    messages: int
    done_bytes: float


class Speed:
    """Of the last seconds: of messages, and of the way through the archive."""

    def __init__(self, *, is_dry: bool = False) -> None:
        self._is_dry = is_dry
        self._samples = deque([_Sample(0.0, 0, 0.0)])

    def add(self, progress: Progress) -> None:
        """How far it is now. Before the first message, time does not count."""
        counts, samples = progress.counts, self._samples
        sample = _Sample(progress.seconds, counts.matched if self._is_dry else counts.sent, done_bytes(progress))
        if not sample.messages or sample.messages < samples[-1].messages:  # it begins, another time where it has phases
            samples.clear()
        samples.append(sample)
        while len(samples) > 2 and samples[1].seconds < sample.seconds - _WINDOW_S:
            samples.popleft()

    @property
    def messages_a_second(self) -> float:
        first, last = self._samples[0], self._samples[-1]
        return _quotient(last.messages - first.messages, last.seconds - first.seconds)

    @property
    def bytes_a_second(self) -> float:
        first, last = self._samples[0], self._samples[-1]
        return _quotient(last.done_bytes - first.done_bytes, last.seconds - first.seconds)


def _quotient(amount: float, seconds: float) -> float:
    return max(amount / seconds, 0.0) if seconds > 0 else 0.0


def done_bytes(progress: Progress) -> float:
    """Of the archive: what is read, but for that part of what matched which still waits to be sent."""
    counts = progress.counts
    settled = counts.sent + counts.failed
    waits = settled and counts.matched > settled
    return counts.read_bytes * settled / counts.matched if waits else counts.read_bytes


def part_done(progress: Progress) -> float:
    """0 to 1."""
    return min(done_bytes(progress) / progress.total_bytes, 1.0) if progress.total_bytes else 0.0


def progress_text(progress: Progress, speed: Speed, *, is_dry: bool = False) -> str:
    """How many messages, how fast, and for how long it will go on."""
    counts = progress.counts
    words = [
        progress.phase,
        f"{counts.matched:,} found" if is_dry else f"{counts.sent:,} sent",
        f"{counts.failed:,} failed" if counts.failed else "",
        f"{speed.messages_a_second:,.0f}/s",
        *_way(progress, speed),
    ]
    return "  ".join(filter(None, words))


def _way(progress: Progress, speed: Speed) -> tuple[str, ...]:
    done = done_bytes(progress)
    if done >= progress.total_bytes:
        return ()
    left_s = (progress.total_bytes - done) / speed.bytes_a_second if speed.bytes_a_second else None
    return (
        f"{size_text(done)} of {size_text(progress.total_bytes)}",
        "" if left_s is None else f"{duration_text(left_s)} left",
    )
