"""Messages of Go's nsqd written down as ours: a topic's log, and a journal for each of its channels.

Go's nsqd keeps a queue for each topic, of what no channel has yet, and one for each channel. All of them go into one
log: the channels' queues one after the other, in files that are marked as imported, each finished in all channels but
its own; then the topic's own queue, in an ordinary file. Ids, times and attempts stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from nsqd_py.broker.restoring import group_waiting
from nsqd_py.diskqueue.go_queue import GoQueue, OnDamage
from nsqd_py.diskqueue.journal import Journal, SavedPosition, Wait, journal_name
from nsqd_py.diskqueue.ranges import SeqRanges
from nsqd_py.go_import.existing import ExistingTopic
from nsqd_py.go_import.log_writer import LogWriter
from nsqd_py.go_import.repeats import Blocks, Survey, once, only, survey, without


@dataclass(slots=True)
class GoTopic:
    """What Go's nsqd left of a topic; `channels` are all that are known, with or without a queue.

    is_named  `nsqd.dat` says that it and its channels exist; otherwise new files have to
    """

    name: str
    is_paused: bool = False
    is_named: bool = True
    queue: GoQueue | None = None
    channels: dict[str, GoQueue | None] = field(default_factory=dict)


@dataclass(slots=True)
class ImportedTopic:
    """What became of it: messages by channel, and those that no channel has yet."""

    name: str
    channels: dict[str, int] = field(default_factory=dict)
    unreleased: int = 0
    size_bytes: int = 0

    @property
    def message_count(self) -> int:
        return self.unreleased + sum(self.channels.values())


def import_topic(
    topic: GoTopic,
    existing: ExistingTopic,
    folder: Path,
    max_file_bytes: int,
    on_damage: OnDamage,
    on_progress: Callable[[], None],
) -> ImportedTopic:
    """Write all messages of a topic, and where its channels stand, into the folder.

    Raises OSError, and what `on_progress` raises, which is called once for each piece that is read.
    """
    return _TopicImport(topic, existing, folder, max_file_bytes, on_damage, on_progress).run()


@dataclass(slots=True)
class _Share:
    """What a channel gets: the numbers low..high (not included), and how often some of them were tried."""

    low: int
    high: int
    waits: list[Wait]


class _TopicImport:
    def __init__(
        self,
        topic: GoTopic,
        existing: ExistingTopic,
        folder: Path,
        max_file_bytes: int,
        on_damage: OnDamage,
        on_progress: Callable[[], None],
    ) -> None:
        self._topic = topic
        self._existing = existing
        self._folder = folder
        self._on_damage = on_damage
        self._on_progress = on_progress
        self._writer = LogWriter(folder, topic.name, existing.next_seq, existing.used_id, max_file_bytes)

    def run(self) -> ImportedTopic:
        own = survey(self._blocks(self._topic.queue))
        surveys = {
            channel: survey(self._blocks(queue), own.lowest) for channel, queue in self._topic.channels.items()
        }
        imported = ImportedTopic(self._topic.name)
        with self._writer as writer:
            given = self._given(surveys.values())
            shares = {channel: self._write_channel(channel, found, own, given) for channel, found in surveys.items()}
            own_from = writer.next_seq
            was_written = bool(own.count) or own_from > self._existing.next_seq or not self._topic.is_named
            if was_written:
                writer.roll(is_imported=False)  # what is published from now on is no import
                writer.write(without(once(self._blocks(self._topic.queue), own), given))
        if was_written:
            self._write_journals(shares, own_from)
        imported.channels = {channel: share.high - share.low for channel, share in shares.items()}
        imported.unreleased = writer.next_seq - own_from
        imported.size_bytes = writer.size_bytes
        return imported

    def _blocks(self, queue: GoQueue | None) -> Blocks:
        for messages in queue.blocks(self._on_damage) if queue is not None else ():
            self._on_progress()
            yield messages

    def _given(self, surveys: Iterable[Survey]) -> set[int]:
        """Ids in the topic's own queue that a channel has: the topic was giving these to all channels."""
        had = set[int]().union(*(found.shared for found in surveys))
        if not had:
            return had
        return {message[2] for messages in self._blocks(self._topic.queue) for message in messages if message[2] in had}

    def _write_channel(self, channel: str, found: Survey, own: Survey, given: set[int]) -> _Share:
        low = self._writer.next_seq
        blocks = once(self._blocks(self._topic.channels[channel]), found)
        missed = given - found.shared
        if missed:
            blocks = chain(blocks, only(once(self._blocks(self._topic.queue), own), missed))
        waits = self._writer.write(blocks)
        return _Share(low, self._writer.next_seq, waits)

    # ---- where the channels stand

    def _write_journals(self, shares: dict[str, _Share], own_from: int) -> None:
        channels = {**dict.fromkeys(self._existing.channels), **shares}
        for channel in channels:
            position = self._existing.channels.get(channel) or SavedPosition(SeqRanges(self._start_of_new_channel()))
            for other, share in shares.items():
                if other != channel and share.high > share.low:
                    position.finished.add_missing(share.low, share.high)
            waits = shares[channel].waits if channel in shares else []
            self._save(journal_name(self._topic.name, channel), position, waits)
        if self._topic.is_paused and channels:
            # What it held back before cannot wait behind what its channels get now.
            is_between = own_from > self._existing.next_seq or self._existing.held is None
            held_from = own_from if is_between else self._existing.first_unreleased
            self._save(journal_name(self._topic.name), SavedPosition(SeqRanges(held_from)), [])

    def _start_of_new_channel(self) -> int:
        existing = self._existing
        return existing.next_seq if existing.channels else existing.first_unreleased

    def _save(self, name: str, position: SavedPosition, waits: list[Wait]) -> None:
        journal = Journal(self._folder / name)
        waiting = chain(group_waiting(position.waiting, position.end), waits)
        journal.snapshot(position.finished.floor, position.finished.islands(), waiting)
