"""Reading a data directory as a start of nsqd would, every record with its checksum, and changing nothing.

`LogNumbers` says which messages of a log are in which state, `load_directory` reads the topics and reports on them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from nsqd_py.broker import clock_file, metadata, state_files
from nsqd_py.diskqueue import recovery
from nsqd_py.diskqueue.damage import missing_files, needed_of
from nsqd_py.diskqueue.journals.journal import SavedPosition, journal_name, read_journal, says_deleted
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, common, count_of, minus, union
from nsqd_py.diskqueue.journals.waits import PackedWaits
from nsqd_py.diskqueue.records import NewerFormat
from nsqd_py.fsck.reports import ChannelReport, DamageKind, DirectoryReport, FileReport, Finding, TopicReport
from nsqd_py.go_import import FOLDER
from nsqd_py.go_import.go_files import parse_go_name
from nsqd_py.stores.directories import STATE_FILES, is_set_aside

STAT_BLOCK_BYTES = 512
_DAMAGED = re.compile(r"damaged|.*\.damaged~*")
_LEFTOVERS = (".gone", ".spare", ".compact", ".back", ".tmp")  # the next start removes them


# ---- the numbers of a log


def released_until(
    log_end: int, saved: Iterable[SavedPosition], held: SavedPosition | None, *, is_held: bool
) -> int:
    """Return the number up to which a topic has released its messages to its channels.

    A topic that is not held has released all; one that is held continues at its position.
    """
    if not is_held:
        return log_end
    floor = held.finished.floor if held is not None else 0
    return max([floor, *(position.end for position in saved)])


@dataclass(frozen=True, slots=True)
class LogNumbers:
    """The numbers of a topic's log.

    readable  messages that can be read, in rising order
    released  number up to which messages are in the channels
    deferred  messages that were published with a delay, by file
    end       number of the next message
    stored    numbers of the messages that the store has, in rising order
    """

    readable: list[Range]
    released: int
    deferred: Sequence[PackedWaits]
    end: int
    stored: Sequence[Range] = ()

    @property
    def held(self) -> list[Range]:
        """The readable messages that are in no channel yet."""
        return [(max(low, self.released), high) for low, high in self.readable if high > self.released]

    @property
    def holes(self) -> list[Range]:
        """The numbers of messages that were published, and can be read neither here nor in the store, in rising order."""
        return minus(self._absent, self.stored)

    @property
    def _absent(self) -> list[Range]:
        absent = []
        reached = 0
        for low, high in [*self.readable, (self.end, self.end)]:
            if reached < low:
                absent.append((reached, low))
            reached = high
        return absent

    def missing(self, saved: Iterable[SavedPosition], held: SavedPosition | None) -> list[Range]:
        """Return the unreadable numbers that some channel, or the topic, has not finished."""
        missing = [
            hole for position in saved for hole in needed_of(self.holes, position.finished, self.released)
        ]
        unreleased = [(max(low, self.released), high) for low, high in self.holes]
        if held is not None:
            finished = held.finished
        else:
            finished = SeqRanges()
        return missing + needed_of(unreleased, finished, self.end)

    def unfinished(self, saved: SavedPosition) -> list[Range]:
        """Return the readable messages that this channel has not finished."""
        return [
            gap for low, high in self.readable for gap in saved.finished.gaps(low, min(high, self.released))
        ]

    def report(self, name: str, saved: SavedPosition, now_ns: int, *, is_paused: bool) -> ChannelReport:
        """Return the report on one channel."""
        unfinished = self.unfinished(saved)
        count = count_of(unfinished)
        released = count_of(self.readable) - count_of(self.held)
        deferred = len(self.later(unfinished, saved.waiting, now_ns))
        missing = count_of(needed_of(self.holes, saved.finished, self.released))
        only_stored = common(self._absent, self.stored)
        stored = count_of(needed_of(only_stored, saved.finished, self.released))
        return ChannelReport(name, is_paused, count - deferred, deferred, released - count, missing, stored)

    def later(self, unfinished: list[Range], waiting: PackedWaits, now_ns: int) -> set[int]:
        """Return those of `unfinished` that are due later, by their last requeue, or else by their publish."""
        deferred = [
            (low, high) for low, high, due_ns, _ in chain.from_iterable(self.deferred) if due_ns > now_ns
        ]
        later = {seq for low, high in common(deferred, unfinished) for seq in range(low, high)}
        lows = [low for low, _ in unfinished]
        for seq, (due_ns, _) in waiting.by_number().items():
            index = bisect_right(lows, seq)
            if due_ns <= now_ns:
                later.discard(seq)
            elif index and seq < unfinished[index - 1][1]:
                later.add(seq)
        return later


# ---- the topics of a directory


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """A topic as a start would load it; `positions` are those of its channels."""

    entry: metadata.TopicEntry
    files: list[recovery.RecoveredFile]
    log: LogNumbers
    positions: dict[str, SavedPosition]

    def is_paused(self, channel: str) -> bool:
        return self.entry.channels.get(channel, False)


def load_directory(
    directory: Path, now_ns: int, stored: Mapping[str, Sequence[Range]] = MappingProxyType({})
) -> tuple[DirectoryReport, list[LoadedTopic]]:
    """Return a report on the directory, and its topics; `stored` has the messages of its store. Raises OSError."""
    report = DirectoryReport(str(directory))
    topics = list(_Reader(directory, report, stored).read())
    report.topics += [_topic_report(topic, now_ns) for topic in topics]
    return report, topics


class _Reader:
    """Reads one directory, and adds what it finds to `report`."""

    def __init__(
        self, directory: Path, report: DirectoryReport, stored: Mapping[str, Sequence[Range]]
    ) -> None:
        self._directory = directory
        self._stored = stored
        self.report = report
        self._stopped = state_files.read_clean_stop(directory).ends
        clocks = clock_file.read_clock_file(directory)
        self._is_same_boot = clocks is not None and clocks.is_same_boot(clock_file.read_clocks(0))

    def read(self) -> Iterator[LoadedTopic]:
        found, others = recovery.find_topic_files(self._directory)
        for path in others:
            if _DAMAGED.fullmatch(path.name) or is_set_aside(path.name):
                self.report.set_aside.append(path.name)
            elif parse_go_name(path.name) is not None or path.name == FOLDER:
                self.report.go_files.append(path.name)
            elif path.name not in STATE_FILES and not path.name.endswith(_LEFTOVERS):
                self.report.others.append(path.name)
        for name in state_files.damaged_files(self._directory):
            path = self._directory / name
            self._note(path, DamageKind.CHECKSUM, 0, path.stat().st_size)
        path = self._directory / state_files.METADATA_FILE
        try:
            named = metadata.read_metadata(path)
        except metadata.BadMetadata:
            named = []
            self._note(path, DamageKind.METADATA, 0, path.stat().st_size)
        entries = {entry.name: entry for entry in named}
        for name in sorted(entries.keys() | found.keys()):
            own = None
            if name in found:
                own = found[name].journals.get("")
            if own is not None and says_deleted(own):  # a start of nsqd completes its deletion
                continue
            entry = entries.get(name, metadata.TopicEntry(name))
            yield self._read_topic(entry, found.get(name, recovery.TopicFiles()))

    # ---- one topic

    def _read_topic(self, entry: metadata.TopicEntry, found: recovery.TopicFiles) -> LoadedTopic:
        stop = self._stopped.get(entry.name)
        noted = len(self.report.findings)
        files = self._read_log(found, stop)
        is_damaged = any(finding.is_damage for finding in self.report.findings[noted:])
        saved = {name: self._read_journal(path) for name, path in found.journals.items()}
        held = saved.pop("", None)
        known = [position for position in saved.values() if position is not None]
        deleted = {name for name, position in saved.items() if position is not None and position.is_deleted}
        names = [name for name in {**entry.channels, **saved} if name not in deleted]
        log_end = 0
        if files:
            log_end = files[-1].file.end_seq
        ends = [log_end, *(position.end for position in known)]
        if held is not None:
            ends.append(held.end)
        if stop is not None:
            ends.append(stop.next_seq)
        end = max(ends)
        log = LogNumbers(
            list(chain.from_iterable(map(readable_numbers, files))),
            released_until(end, known, held, is_held=entry.is_paused or not names),
            [file.deferred for file in files],
            end,
            union(self._stored.get(entry.name, ())),
        )
        first_seq = files[0].file.first_seq if files else end
        begin = SavedPosition(SeqRanges(min(first_seq, log.released)))
        positions = {name: saved.get(name) or begin for name in names}
        findings = self.report.findings
        if stop is not None:  # after a kill, the topic may have been in the middle of a deletion
            findings += [_lost_position(entry.name, name) for name in names if name not in found.journals]
        # If something is damaged, messages are missing because of that, and the repair handles both.
        if (stop is not None or self._is_same_boot) and not is_damaged:
            missing = log.missing(positions.values(), held)
            if stop is None:  # after a kill, the end of the log is unknown
                missing = common(missing, [(0, log_end)])
            for gone in missing_files(entry.name, log.holes, missing, stop.file_seqs if stop else ()):
                findings.append(
                    Finding(gone.name, DamageKind.GONE, gone.low, gone.high, gone.detail, entry.name)
                )
        return LoadedTopic(entry, files, log, positions)

    def _read_journal(self, path: Path) -> SavedPosition | None:
        """Read a journal and note its damage; return None if it is empty or unreadable."""
        data = path.read_bytes()
        try:
            journal = read_journal(data)
        except NewerFormat as error:
            raise error.refusal(str(path)) from error
        if data and not journal.end:
            self._note(path, DamageKind.POSITION, 0, len(data))
            return None
        for start, end in journal.damaged:
            self._note(path, DamageKind.JOURNAL, start, end)
        if journal.end < len(data):
            self._note(path, DamageKind.TORN_ENTRY, journal.end, len(data))
        return journal.saved if data else None

    def _read_log(
        self, found: recovery.TopicFiles, stop: recovery.LogEnd | None
    ) -> list[recovery.RecoveredFile]:
        log = recovery.read_log(found.logs, stop, is_check=True)
        for path, _, _, found_seq in log.unreadable:
            if found_seq is None:
                problem = DamageKind.UNREADABLE
            else:
                problem = DamageKind.WRONG_NAME
            detail = "" if found_seq is None else f"it begins with number {found_seq}"
            self._note(path, problem, 0, path.stat().st_size, detail)
        for recovered in log.files:
            path = recovered.file.path
            for start, end in recovered.damaged:
                self._note(path, DamageKind.RECORDS, start, end)
            if recovered.torn is not None:  # only the last file can have been written to when nsqd ended
                is_last = recovered is log.files[-1]
                kind = DamageKind.TORN_RECORD if is_last else DamageKind.RECORDS
                self._note(path, kind, *recovered.torn)
        return log.files

    def _note(self, path: Path, problem: DamageKind, start: int, end: int, detail: str = "") -> None:
        self.report.findings.append(Finding(path.name, problem, start, end, detail))


def _lost_position(topic: str, channel: str) -> Finding:
    detail = f"channel {channel} gets everything that the log holds once more"
    return Finding(journal_name(topic, channel), DamageKind.GONE, 0, 0, detail)


def readable_numbers(recovered: recovery.RecoveredFile) -> Iterator[Range]:
    """Yield the ranges of messages in a file that can be read, in rising order."""
    low = recovered.file.first_seq
    for gap_low, gap_high in sorted(recovered.gaps):
        if gap_low > low:
            yield low, gap_low
        low = max(low, gap_high)
    if recovered.file.end_seq > low:
        yield low, recovered.file.end_seq


def _topic_report(topic: LoadedTopic, now_ns: int) -> TopicReport:
    log = topic.log
    live = list(log.held)
    channels = []
    for name, saved in topic.positions.items():
        live += log.unfinished(saved)
        channels.append(log.report(name, saved, now_ns, is_paused=topic.is_paused(name)))
    files = [_file_report(recovered) for recovered in topic.files]
    held_count = count_of(log.held)
    live_count = count_of(union(live))
    return TopicReport(topic.entry.name, topic.entry.is_paused, held_count, live_count, files, channels)


def _file_report(recovered: recovery.RecoveredFile) -> FileReport:
    file = recovered.file
    return FileReport(
        file.path.name,
        file.first_seq,
        file.end_seq,
        count_of(readable_numbers(recovered)),
        file.path.stat().st_blocks * STAT_BLOCK_BYTES,
        file.header.is_sparse,
        file.header.is_imported,
    )
