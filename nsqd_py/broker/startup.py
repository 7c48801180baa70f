"""Loading a data directory: topics and channels are rebuilt from their files.

The topics are those that `nsqd.dat` names and those that have files: a crash may have come between writing the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain
from pathlib import Path

from nsqd_py.broker import metadata, state_files
from nsqd_py.broker.broker import Broker
from nsqd_py.broker.services import Topic
from nsqd_py.diskqueue.damage import missing_files, needed_of
from nsqd_py.diskqueue.files.log_file import BACK_SUFFIX, COMPACT_SUFFIX, GONE_SUFFIX, SPARE_SUFFIX
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.diskqueue.journals.journal import Journal, SavedPosition, says_deleted
from nsqd_py.diskqueue.journals.ranges import Range, SeqRanges, common, count_of, minus, ranges_of, union
from nsqd_py.diskqueue.journals.waits import PackedWaits, grouped, parts, without
from nsqd_py.diskqueue.recovery import TopicFiles, find_topic_files, read_log
from nsqd_py.errors import StartError, is_full
from nsqd_py.pqueues.deferred import Wait
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.queue.position import Position
from nsqd_py.server.options import HOSTNAME, default_node_id

_LEFTOVERS = (
    BACK_SUFFIX,
    COMPACT_SUFFIX,
    GONE_SUFFIX,
    SPARE_SUFFIX,
    ".cursor.tmp",
    ".dat.tmp",
    ".damaged.tmp",
    f"{state_files.STOP_FILE}.tmp",
    f"{state_files.CLOCK_FILE}.tmp",
    f"{EPOCHS_FILE}.tmp",
    f"{state_files.MEMBER_FILE}.tmp",
    f"{state_files.STANDBYS_FILE}.tmp",
)


def load(broker: Broker, directory: Path, *, is_same_boot: bool = False) -> None:
    """Create all topics and channels that the directory has. Raises StartError, and OSError for the small files.

    is_same_boot  True if the machine was not rebooted since the last nsqd on this data path
    """
    stopped = state_files.read_clean_stop(directory)
    may_get_back = (directory / state_files.STANDBYS_FILE).exists()
    epochs = state_files.read_epochs(directory)
    if epochs is not None:
        broker.logs.restore(epochs)
    # It may write a file: after all that may refuse the directory.
    broker.guids.node_id = _node_id(broker, directory)
    broker.log.info("ID: %d", broker.guids.node_id)
    listed = _read_metadata(broker, directory / state_files.METADATA_FILE)
    entries = {entry.name: entry for entry in listed}
    files = _find_files(directory, entries)
    _complete_deletions(broker, directory, files, entries)
    for entry in _durable(broker, entries.values()):
        try:
            _TopicLoader(
                broker,
                entry,
                files.get(entry.name, TopicFiles()),
                stopped,
                is_same_boot=is_same_boot,
                may_get_back=may_get_back,
            ).load()
        except OSError as error:
            raise StartError(_refusal(entry.name, directory, error)) from error
    broker.logs.forget_saved()
    state_files.forget_clean_stop(directory)


def _durable(broker: Broker, entries: Iterable[metadata.TopicEntry]) -> Iterator[metadata.TopicEntry]:
    """Yield the entries of topics that have files."""
    for entry in entries:
        if not is_valid_name(entry.name.encode()):
            broker.log.warning("skipping creation of invalid topic %s", entry.name)
        elif not is_ephemeral(entry.name):
            yield entry


def _node_id(broker: Broker, directory: Path) -> int:
    """Return --node-id; without it, a number that another data path on this host does not have, but for a chance of 1 in 1024.

    Raises StartError.
    """
    node_id = broker.services.options.node_id
    if node_id is not None:
        return node_id
    try:
        identity = state_files.data_path_id(directory)
    except OSError as error:  # the disk is full, which may pass
        broker.log.warning(
            "DATAPATH: its id cannot be kept in %s: %s", state_files.MEMBER_FILE, error.strerror
        )
        identity = str(directory.absolute())
    return default_node_id(HOSTNAME, identity)


def _refusal(topic: str, directory: Path, error: OSError) -> str:
    """Return the text of a StartError."""
    if is_full(error):
        return (
            f"the disk of {directory.absolute()} is full: what nsqd must write about topic {topic} before it starts "
            f"did not fit; free some space ({error})"
        )
    return f"failed to read topic {topic} - {error}"


def _read_metadata(broker: Broker, path: Path) -> list[metadata.TopicEntry]:
    """Return the topics of `nsqd.dat`. A damaged one is renamed; topics and channels are then found by their files."""
    try:
        return metadata.read_metadata(path)
    except metadata.BadMetadata as error:
        aside = _set_aside(path)
        broker.log.error(
            "NSQ: %s; set aside as %s. Topics and channels are taken from their files; which of them were paused is "
            "not known any more",
            error,
            aside.name,
        )
        return []


def _set_aside(path: Path) -> Path:
    """Rename a file that cannot be read, so that its bytes stay; return the new path."""
    aside = path.with_name(path.name + ".damaged")
    while aside.exists():
        aside = aside.with_name(aside.name + "~")
    path.rename(aside)
    return aside


def _find_files(directory: Path, entries: dict[str, metadata.TopicEntry]) -> dict[str, TopicFiles]:
    """Return the files of topics, and add topics and channels that `nsqd.dat` lacks. Delete leftovers of a kill."""
    files, others = find_topic_files(directory)
    for path in others:
        if path.name.endswith(_LEFTOVERS):
            path.unlink(missing_ok=True)
    for topic, found in files.items():
        channels = [channel for channel in found.journals if channel]
        if found.logs or channels:
            entry = entries.setdefault(topic, metadata.TopicEntry(topic))
            for channel in channels:
                entry.channels.setdefault(channel, False)
    return files


def _complete_deletions(
    broker: Broker, directory: Path, files: dict[str, TopicFiles], entries: dict[str, metadata.TopicEntry]
) -> None:
    """Remove the files of topics whose deletion was interrupted, and last the one that says so. Raises StartError."""
    for topic, found in list(files.items()):
        own = found.journals.get("")
        try:
            if own is None or not says_deleted(own):
                continue
            journals = [path for channel, path in found.journals.items() if channel]
            for path in [*(path for _, path in found.logs), *journals, own]:
                path.unlink()
        except OSError as error:
            raise StartError(_refusal(topic, directory, error)) from error
        del files[topic]
        entries.pop(topic, None)
        broker.metadata.want()
        broker.log.warning("TOPIC(%s): its deletion was interrupted, and is completed", topic)


class _TopicLoader:
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
            aside = _set_aside(unreadable.path)
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
        for low, high in accepted:
            saved.finished.add_missing(low, high)
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


def restore_position(
    saved: SavedPosition,
    released: int,
    deferred: Sequence[PackedWaits],
    now_ns: int,
    lost: Iterable[Range] = (),
) -> Position:
    """Return a position as its journal left it; unfinished messages keep their attempts and due times.

    `deferred` are the runs of messages that were published with a delay. `lost` are unfinished messages that are not in
    the log.
    """
    position = Position(saved.finished.floor, released)
    position.finished = saved.finished
    position.lost = SeqRanges(0, lost)
    if position.has_lost:
        waits = parts(saved.waiting.rising(), position.lost.parts)
        position.lost_waits = list(grouped(waits))
    waiting: Iterable[Range] = ()
    if deferred or len(saved.waiting):
        waiting = _restore_waiting(position, saved.waiting, deferred, now_ns)
    for low, high in merge(saved.finished.islands(), ranges_of(position.lost), waiting):
        position.skip(low, min(high, released))
    return position


def _restore_waiting(
    position: Position, saved: PackedWaits, deferred: Sequence[PackedWaits], now_ns: int
) -> Iterator[Range]:
    """Defer and queue what waited, and return its ranges in rising order.

    There may be millions of messages: before they are deferred or queued, none of them has an object.
    """
    released = position.released

    def unsettled(low: int, high: int) -> Iterator[Range]:
        return position.unsettled(low, min(high, released))

    requeued = PackedWaits(parts(saved, unsettled))
    waits = parts(chain.from_iterable(deferred), unsettled)
    published = PackedWaits(waits).latest()
    if len(requeued):
        published = PackedWaits(without(published.rising(), requeued.rising()))
    _defer_later(position, merge(requeued.rising(), published.rising()), now_ns)
    _queue_due(position, chain(requeued, published), now_ns)
    return ((low, high) for low, high, _, _ in merge(requeued.rising(), published.rising()))


def _defer_later(position: Position, rising: Iterable[Wait], now_ns: int) -> None:
    """Defer what is not due yet."""
    for low, high, due_ns, attempts in grouped(wait for wait in rising if wait[2] > now_ns):
        position.defer(due_ns, (low, high, attempts, None))


def _queue_due(position: Position, waits: Iterable[Wait], now_ns: int) -> None:
    """Queue what is due, each run behind those that were queued before it was."""
    last = position.end_of_queue

    def after(wait: Wait) -> int:
        # If the time of a requeue is unknown, the run goes to the end of the queue, in the order of due times.
        return min(-1 - wait[2], last) if wait[2] < 0 else last

    def order_in_queue(wait: Wait) -> int:
        return after(wait) << 64 | max(wait[2] + 1, 0)

    due = PackedWaits(wait for wait in waits if wait[2] <= now_ns).in_order(order_in_queue)
    for low, high, until, attempts in grouped((wait[0], wait[1], after(wait), wait[3]) for wait in due):
        position.requeue((low, high, attempts, None), until)
