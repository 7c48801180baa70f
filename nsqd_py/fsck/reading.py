"""Reading a data directory as a start of nsqd would, every record with its checksum, and changing nothing."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nsqd_py.broker.state_files import (
    BACKUP_FILE,
    CLOCK_FILE,
    MEMBER_FILE,
    METADATA_FILE,
    STANDBY_FILE,
    STOP_FILE,
    BadMetadata,
    TopicEntry,
    read_clean_stop,
    read_clock_file,
    read_clocks,
    read_metadata,
)
from nsqd_py.diskqueue.files import parse_log_file_name
from nsqd_py.diskqueue.journal import JOURNAL_SUFFIX, SavedPosition, journal_name, read_journal
from nsqd_py.diskqueue.ranges import EPOCHS_FILE, Range, SeqRanges, common, union
from nsqd_py.diskqueue.records import NewerFormat
from nsqd_py.diskqueue.recovery import DeferredSpan, LogEnd, MissingFile, RecoveredFile, missing_files, needed_of, read_log
from nsqd_py.fsck.reports import ChannelReport, DamageKind, DirectoryReport, FileReport, Finding, TopicReport
from nsqd_py.go_import import FOLDER
from nsqd_py.go_import.go_files import parse_go_name


def size_of(ranges: Iterable[Range]) -> int:
    return sum(max(0, high - low) for low, high in ranges)


def released_until(log_end: int, saved: Iterable[SavedPosition], held: SavedPosition | None, *, is_held: bool) -> int:
    """Return the number up to which a topic has released its messages to its channels.

    A topic that is not held has released all; one that is held continues at its position.
    """
    if not is_held:
        return log_end
    return max([held.finished.floor if held is not None else 0, *(position.end for position in saved)])


@dataclass(frozen=True, slots=True)
class LogNumbers:
    """The numbers of a topic's log.

    kept      messages that can be read, in rising order
    released  number up to which messages are in the channels
    deferred  messages that were published with a delay
    end       number of the next message, if it is above all that can be read
    """

    kept: list[Range]
    released: int
    deferred: list[DeferredSpan]
    end: int = 0

    @property
    def held(self) -> list[Range]:
        """The kept messages that are in no channel yet."""
        return [(max(low, self.released), high) for low, high in self.kept if high > self.released]

    @property
    def _end(self) -> int:
        return max(self.end, self.kept[-1][1] if self.kept else 0)

    @property
    def holes(self) -> list[Range]:
        """The numbers of messages that were published and cannot be read, in rising order."""
        lows = [0, *(high for _, high in self.kept)]
        highs = [*(low for low, _ in self.kept), self._end]
        return [(low, high) for low, high in zip(lows, highs, strict=True) if low < high]

    def missing(self, saved: Iterable[SavedPosition], held: SavedPosition | None) -> list[Range]:
        """Return the unreadable numbers that some channel, or the topic, has not finished."""
        missing = [hole for position in saved for hole in needed_of(self.holes, position.finished, self.released)]
        unreleased = [(max(low, self.released), high) for low, high in self.holes]
        return missing + needed_of(unreleased, held.finished if held is not None else SeqRanges(), self._end)

    def unfinished(self, saved: SavedPosition) -> list[Range]:
        """Return the kept messages that this channel has not finished."""
        return [gap for low, high in self.kept for gap in saved.finished.gaps(low, min(high, self.released))]

    def report(self, name: str, saved: SavedPosition, now_ns: int, *, is_paused: bool) -> ChannelReport:
        """Return the report on one channel."""
        unfinished = self.unfinished(saved)
        count = size_of(unfinished)
        deferred = len(self.later(unfinished, saved.waiting, now_ns))
        missing = size_of(needed_of(self.holes, saved.finished, self.released))
        given = size_of((low, min(high, self.released)) for low, high in self.kept)
        return ChannelReport(name, is_paused, count - deferred, deferred, given - count, missing)

    def later(self, unfinished: list[Range], waiting: Mapping[int, tuple[int, int]], now_ns: int) -> set[int]:
        """Return those of `unfinished` that are due later, by their last requeue, or else by their publish."""
        deferred = [(span.low, span.high) for span in self.deferred if span.due_ns > now_ns]
        later = {seq for low, high in common(deferred, unfinished) for seq in range(low, high)}
        lows = [low for low, _ in unfinished]
        for seq, (due_ns, _) in waiting.items():
            if due_ns <= now_ns:
                later.discard(seq)
            elif (place := bisect_right(lows, seq)) and seq < unfinished[place - 1][1]:
                later.add(seq)
        return later


STAT_BLOCK_BYTES = 512
_SET_ASIDE = re.compile(r"damaged|.*\.damaged~*|go-nsqd-.*|standby-(alone|removed)-.*")
_LEFTOVERS = (".gone", ".spare", ".compact", ".tmp")  # the next start removes them
_STATE_FILES = (METADATA_FILE, STOP_FILE, CLOCK_FILE, EPOCHS_FILE, STANDBY_FILE, MEMBER_FILE, BACKUP_FILE)


@dataclass(slots=True)
class FoundTopic:
    """The files of a topic, by kind."""

    logs: list[tuple[int, Path]] = field(default_factory=list)
    journals: dict[str, Path] = field(default_factory=dict)
    held: Path | None = None


@dataclass(frozen=True, slots=True)
class LoadedTopic:
    """A topic as a start would load it; `positions` are those of its channels."""

    entry: TopicEntry
    files: list[RecoveredFile]
    log: LogNumbers
    positions: dict[str, SavedPosition]

    def is_paused(self, channel: str) -> bool:
        return self.entry.channels.get(channel, False)


def load_directory(directory: Path, now_ns: int) -> tuple[DirectoryReport, list[LoadedTopic]]:
    """Return a report on the directory, and its topics. Raises OSError."""
    reader = _Reader(directory, now_ns)
    topics = list(reader.read())
    return reader.report, topics


class _Reader:
    """Reads one directory."""

    def __init__(self, directory: Path, now_ns: int) -> None:
        self._directory = directory
        self._now_ns = now_ns
        self.report = DirectoryReport(str(directory))
        self._topics: dict[str, FoundTopic] = defaultdict(FoundTopic)
        self._stopped: dict[str, LogEnd] = {}
        self._is_same_boot = False

    def read(self) -> Iterator[LoadedTopic]:
        self._stopped = read_clean_stop(self._directory)
        clocks = read_clock_file(self._directory)
        self._is_same_boot = clocks is not None and clocks.is_same_boot(read_clocks(0))
        for path in sorted(self._directory.iterdir()):
            self._sort(path)
        entries = {entry.name: entry for entry in self._entries()}
        for name in sorted(entries.keys() | self._topics.keys()):
            topic = self._read_topic(entries.get(name, TopicEntry(name)), self._topics[name])
            self.report.topics.append(self._report_on(topic))
            yield topic

    def _sort(self, path: Path) -> None:
        """Note a file under the kind that its name shows."""
        name = path.name
        parsed = parse_log_file_name(name)
        if parsed is not None:
            self._topics[parsed[0]].logs.append((parsed[1], path))
        elif name.endswith(JOURNAL_SUFFIX):
            topic, _, channel = name.removesuffix(JOURNAL_SUFFIX).partition(":")
            if channel:
                self._topics[topic].journals[channel] = path
            else:
                self._topics[topic].held = path
        elif name not in _STATE_FILES and not name.endswith(_LEFTOVERS):
            self._list_of(path).append(name)

    def _list_of(self, path: Path) -> list[str]:
        report = self.report
        if _SET_ASIDE.fullmatch(path.name):
            return report.set_aside
        if parse_go_name(path.name) is not None or path.name == FOLDER:
            return report.go_files
        return report.others

    def _entries(self) -> list[TopicEntry]:
        path = self._directory / METADATA_FILE
        try:
            return read_metadata(path)
        except BadMetadata:
            self._note(path, DamageKind.METADATA, 0, path.stat().st_size)
            return []

    # ---- one topic

    def _read_topic(self, entry: TopicEntry, found: FoundTopic) -> LoadedTopic:
        stop = self._stopped.get(entry.name)
        noted = len(self.report.findings)
        files = self._read_log(found, stop)
        is_damaged = any(finding.is_damage for finding in self.report.findings[noted:])
        saved = {name: self._read_journal(path) for name, path in found.journals.items()}
        held = self._read_journal(found.held) if found.held is not None else None
        names = [name for name in {**entry.channels, **saved} if not _is_deleted(saved.get(name))]
        ends = [position.end for position in [*saved.values(), held] if position is not None]
        ends += [stop.next_seq] if stop is not None else []
        end = max([files[-1].file.end_seq if files else 0, *ends])
        log = LogNumbers(
            [kept for file in files for kept in kept_numbers(file)],
            released_until(end, filter(None, saved.values()), held, is_held=entry.is_paused or not names),
            [span for file in files for span in file.deferred],
            end,
        )
        begin = SavedPosition(SeqRanges(min(files[0].file.first_seq if files else end, log.released)))
        positions = {name: saved.get(name) or begin for name in names}
        if stop is not None:  # after a kill, the topic may have been in the middle of a deletion
            self._note_gone_positions(entry.name, [name for name in names if name not in found.journals])
        # If something is damaged, messages are missing because of that, and the repair handles both.
        if (stop is not None or self._is_same_boot) and not is_damaged:
            missing = log.missing(positions.values(), held)
            if stop is None:  # after a kill, the end of the log is unknown
                missing = common(missing, [(0, files[-1].file.end_seq if files else 0)])
            self._note_gone(missing_files(entry.name, log.holes, missing, stop.file_seqs if stop else ()), entry.name)
        return LoadedTopic(entry, files, log, positions)

    def _report_on(self, topic: LoadedTopic) -> TopicReport:
        log, positions = topic.log, topic.positions
        return TopicReport(
            topic.entry.name,
            topic.entry.is_paused,
            held=size_of(log.held),
            live=size_of(union([*log.held, *(gap for saved in positions.values() for gap in log.unfinished(saved))])),
            files=[_file_report(file) for file in topic.files],
            channels=[
                log.report(name, position, self._now_ns, is_paused=topic.is_paused(name)) for name, position in positions.items()
            ],
        )

    def _note_gone(self, gone: Iterable[MissingFile], topic: str) -> None:
        for file in gone:
            self.report.findings.append(Finding(file.name, DamageKind.GONE, file.low, file.high, file.detail, topic))

    def _note_gone_positions(self, topic: str, channels: Iterable[str]) -> None:
        for channel in channels:
            detail = f"channel {channel} gets everything that the log holds once more"
            self.report.findings.append(Finding(journal_name(topic, channel), DamageKind.GONE, 0, 0, detail))

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

    def _read_log(self, found: FoundTopic, stop: LogEnd | None) -> list[RecoveredFile]:
        log = read_log(found.logs, stop, is_check=True)
        for path, _, _, found_seq in log.unreadable:
            problem = DamageKind.UNREADABLE if found_seq is None else DamageKind.WRONG_NAME
            detail = "" if found_seq is None else f"it begins with number {found_seq}"
            self._note(path, problem, 0, path.stat().st_size, detail)
        for recovered in log.files:
            path = recovered.file.path
            for start, end in recovered.damaged:
                self._note(path, DamageKind.RECORDS, start, end)
            if recovered.torn is not None:  # only the last file can have been written to when nsqd ended
                is_last = recovered is log.files[-1]
                self._note(path, DamageKind.TORN_RECORD if is_last else DamageKind.RECORDS, *recovered.torn)
        return log.files

    def _note(self, path: Path, problem: DamageKind, start: int, end: int, detail: str = "") -> None:
        self.report.findings.append(Finding(path.name, problem, start, end, detail))


def _is_deleted(saved: SavedPosition | None) -> bool:
    return saved is not None and saved.is_deleted


def kept_numbers(recovered: RecoveredFile) -> Iterator[Range]:
    """Yield the ranges of messages in a file that can be read, in rising order."""
    low = recovered.file.first_seq
    for gap_low, gap_high in sorted(recovered.gaps):
        if gap_low > low:
            yield low, gap_low
        low = max(low, gap_high)
    if recovered.file.end_seq > low:
        yield low, recovered.file.end_seq


def _file_report(recovered: RecoveredFile) -> FileReport:
    file = recovered.file
    return FileReport(
        file.path.name,
        file.first_seq,
        file.end_seq,
        size_of(kept_numbers(recovered)),
        file.path.stat().st_blocks * STAT_BLOCK_BYTES,
        file.header.is_sparse,
        file.header.is_imported,
    )
