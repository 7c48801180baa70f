"""Loading one topic: its log, and its channels at the positions in their journals."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from nsqd_py.broker import metadata, state_files
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.lifetime.restored_position import restore_position
from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.damage import missing_files, needed_of
from nsqd_py.diskqueue.journals.journal import Journal, SavedPosition
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, common, count_of, minus, union
from nsqd_py.diskqueue.recovery import TopicFiles, read_log
from nsqd_py.protocol.names import is_ephemeral, is_valid_name


def set_aside(path: Path) -> Path:
    """Rename a file that cannot be read, so that its bytes stay; return the new path."""
    aside = path.with_name(path.name + ".damaged")
    while aside.exists():
        aside = aside.with_name(aside.name + "~")
    path.rename(aside)
    return aside


class TopicLoader:
    """Loads one topic.

    files    its files
    stopped  the record of the last clean stop
    is_same_boot  True if the machine was not rebooted since the last nsqd on this data path
    may_get_back  True if a standby may have what is missing here
    _needed  missing numbers that some channel has not finished

    After a power cut a position may be older than the log, and the messages that it needs may have been finished. Then
    it is not certain that a missing message is lost.
    """

    def __init__(
        self,
        broker: Broker,
        entry: metadata.TopicEntry,
        files: TopicFiles,
        stopped: state_files.CleanStop,
        *,
        is_same_boot: bool,
        may_get_back: bool,
    ) -> None:
        self._broker = broker
        self._entry = entry
        self._saved = files.journals
        self._journals = {name: self._journal(name) for name in self._valid_channels()}
        self._stop = stopped.ends.get(entry.name)
        self._is_certain = self._stop is not None or is_same_boot
        self._log = broker.logs.make(entry.name)
        self._found = read_log(files.logs, self._stop)
        self._is_end_open = not stopped.ends or entry.name in stopped.open_ends
        self._may_be_given_back = may_get_back
        self._needed: list[Range] = []
        self._certain_until = 0

    def load(self) -> None:
        saved = {name: self._read_journal(name, journal) for name, journal in self._journals.items()}
        held = self._load_journal("", self._journal("")) if "" in self._saved else None
        self._read_files()
        self._forget_deleted(saved)
        self._extend_log([*saved.values(), held])
        self._broker.guids.skip_past(self._log.used_id)
        topic = self._broker.add_topic(self._entry.name, self._log)
        topic.is_paused = self._entry.is_paused
        self._set_released(topic, saved, held)
        for name, position in saved.items():
            self._add_channel(topic, name, position)
        held_finished = held.finished if held is not None else SeqRanges()
        unreleased = [(max(low, topic.released), high) for low, high in self._found.holes]
        self._needed += needed_of(unreleased, held_finished, self._log.next_seq)
        self._report_missing()
        self._broker.log.info("TOPIC(%s): created", topic.name)
        self._broker.housekeeper.check_soon(topic)

    def _read_files(self) -> None:
        for unreadable in self._found.unreadable:
            aside = set_aside(unreadable.path)
            self._broker.log.error(
                "DISKQUEUE: %s: %s; set aside as %s", unreadable.path.name, unreadable.reason, aside.name
            )
        for recovered in self._found.files:
            self._log.adopt(
                recovered, is_last=recovered is self._found.files[-1], is_synced=self._stop is not None
            )

    def _forget_deleted(self, saved: dict[str, SavedPosition | None]) -> None:
        """Leave out the channels whose journals say that they are deleted."""
        for name, position in list(saved.items()):
            if position is not None and position.is_deleted:
                del saved[name]
                # Not removed yet: `nsqd.dat` may still name the channel, and this start may fail.
                self._broker.metadata.channel_deleted(self._entry.name, name, self._journals[name])

    def _extend_log(self, positions: list[SavedPosition | None]) -> None:
        """Let the log go on behind all numbers that a position or the last clean stop has; what is not there is missing."""
        log = self._log
        found = self._found
        ends = [position.end for position in positions if position is not None]
        if self._stop is not None:
            ends.append(self._stop.next_seq)
        log.next_seq = max([log.next_seq, *ends])
        # After a kill, too: a file is removed only when the positions that have finished it are written.
        self._certain_until = log.next_seq if self._is_certain else 0
        if self._is_end_open:
            self._broker.losses.note_open_end(
                self._entry.name, log.next_seq, may_be_given_back=self._may_be_given_back
            )
        found.extend_to(log.next_seq)
        found.holes = log.not_stored(found.holes)
        found.damaged_holes = log.not_stored(found.damaged_holes)

    def _valid_channels(self) -> list[str]:
        valid = []
        for name in self._entry.channels:
            if is_valid_name(name.encode()) and not is_ephemeral(name):
                valid.append(name)
            else:
                self._broker.log.warning("skipping creation of invalid channel %s", name)
        return valid

    def _read_journal(self, channel: str, journal: Journal) -> SavedPosition | None:
        # After a kill, its topic may have been in the middle of a deletion: files are removed first, then the name.
        if self._stop is not None and channel not in self._saved:
            self._broker.log.warning(
                "TOPIC(%s): %s is gone: channel %s gets everything that the log holds once more",
                self._entry.name,
                journal.path.name,
                channel,
            )
        if channel in self._saved:
            return self._load_journal(channel, journal)
        return None

    def _journal(self, channel: str) -> Journal:
        """Return the journal of a channel, or of the topic; to make its path takes 10 us."""
        path = self._saved.get(channel)
        if path is not None:
            return Journal(path)
        return self._broker.journal(self._entry.name, channel)

    def _load_journal(self, channel: str, journal: Journal) -> SavedPosition | None:
        report = self._broker.log.error
        return journal.load(lambda text: report("TOPIC(%s): %s", self._entry.name, text))

    def _lost(self, needed: list[Range]) -> list[Range]:
        """Return the messages among these that are certainly lost."""
        if needed:
            return common(needed, [(0, self._certain_until), *self._found.damaged_holes])
        return []

    def _unsure(self, needed: list[Range]) -> list[Range]:
        """Return the messages among these that may be finished."""
        return minus(needed, self._lost(needed))

    def _report_missing(self) -> None:
        """Log which files are missing; damaged ones were logged before."""
        needed = union(self._needed)
        if not needed:
            return
        unsure = self._unsure(needed)
        self._broker.losses.note_missing(self._entry.name, needed, unsure)
        self._log.damage.missing_count = count_of(self._lost(needed))
        holes = [hole for hole in self._found.holes if hole not in self._found.damaged_holes]
        name = self._entry.name
        file_seqs = self._stop.file_seqs if self._stop is not None else ()
        for gone in missing_files(name, holes, needed, file_seqs):
            certainty = "were finished just before a power cut, or are lost"
            if gone.high <= self._certain_until:
                certainty = "are lost"
            self._broker.log.warning(
                "TOPIC(%s): %s is gone: %s; they %s", name, gone.name, gone.detail, certainty
            )

    def _set_released(
        self, topic: Topic, saved: dict[str, SavedPosition | None], held: SavedPosition | None
    ) -> None:
        """Set what the topic has released: one that is held continues at its position, others have released all."""
        if saved and not topic.is_paused:
            return
        reached = [position.end for position in saved.values() if position is not None]
        start = held.finished.floor if held is not None else 0
        topic.released = max([start, *reached])
        if held is None or not (self._is_certain and self._may_be_given_back):
            topic.released = max(topic.released, self._log.first_seq)
        topic.unreleased_deferred = [
            (low, high, due_ns)
            for low, high, due_ns, _ in chain.from_iterable(self._found.deferred)
            if low >= topic.released
        ]

    def _add_channel(self, topic: Topic, name: str, saved: SavedPosition | None) -> None:
        is_lost = saved is None
        if saved is None:  # its journal is lost: redeliver everything
            saved = SavedPosition(SeqRanges(min(self._log.first_seq, topic.released)))
        in_holes = needed_of(self._found.holes, saved.finished, topic.released)
        needed = union(in_holes)
        accepted = self._unsure(needed) if needed and not self._may_be_given_back else []
        saved.finished.add_all_missing(accepted)
        if accepted:
            saved.forget_finished()
        lost = saved.finished.gaps_in(needed)
        self._needed += needed
        position = restore_position(saved, topic.released, self._found.deferred, self._broker.clock(), lost)
        channel = self._broker.add_channel(topic, name, position, self._journals[name])
        channel.distributor.lost_count = count_of(self._lost(needed))
        if self._entry.channels[name]:
            channel.pause()
        channel.restore()
        if is_lost or accepted:  # otherwise the journal says the same
            channel.save_snapshot()
