"""Writes into a data path what the store has and it lacks, after a power cut, a fault of the disk, or a takeover.

Where the store has an epoch that began before the end of a log here, what is behind that is set aside: another nsqd has
written the store in the meantime, and this one something that the store never got.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from nsqd_py.broker.metadata import BadMetadata, read_metadata
from nsqd_py.broker.state_files import METADATA_FILE, forget_clean_stop
from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.diskqueue.files.log_file import parse_log_file_name, replace_file
from nsqd_py.diskqueue.journals.journal import SavedPosition, encode_position, journal_name
from nsqd_py.runtime.private_files import open_file
from nsqd_py.standby.copies.data_path import topic_of
from nsqd_py.store.image import LogSource, StoreImage
from nsqd_py.store.log_bytes import salt_of
from nsqd_py.store.logs_here import LogsHere
from nsqd_py.store.restoring.one_topic import TopicCatchUp, move_aside
from nsqd_py.store.restoring.restoration import Restoration, journals_in

_END_BYTES = 4096  # of a log file


def catch_up(restoration: Restoration, image: StoreImage, *, is_last: bool, is_copy: bool = False) -> None:
    """Write what is missing.

    is_last  the data path has the last nsqd.dat that was written: channels that it does not name were deleted, and so were
             topics of which the store has no messages. The deletion of others is in nsqd.epochs. It is not the last one
             where messages are missing: then the disk was put back to an earlier state
    is_copy  the data path is the copy of another nsqd's, which may be behind: where it lacks messages, it lacks positions too.
             Where a file has other messages than the store's, the store's count

    Raises as `Restoration.run` does.
    """
    _CatchUp(restoration, image, is_last=is_last, is_copy=is_copy).run()


class _CatchUp:
    """A data path that catches up with the state of a store.

    _here      the names of its log files and journals, by topic
    _known     the channels of the topics in its nsqd.dat; None if that is missing or damaged
    _left      the same, if other channels and topics were deleted; None if that is not known
    _is_copy   where messages are missing, positions are too old as well
    _is_behind nsqd had written messages that are missing here, or may have
    """

    def __init__(self, restoration: Restoration, image: StoreImage, *, is_last: bool, is_copy: bool) -> None:
        self._restoration = restoration
        self._directory = restoration.directory
        self._log = restoration.log
        self._image = image
        self._here = _files_in(restoration.directory)
        self._journals = journals_in(image)
        self._known = _topics_of(restoration.directory)
        self._logs = LogsHere(restoration.directory, image)
        self._is_store_right = is_copy
        lacks_messages = any(self._lacks_messages(topic) for topic in image.topics)
        self._is_copy = is_copy or (is_last and lacks_messages)
        self._is_behind = is_copy or lacks_messages
        self._left = None
        if is_last and not self._is_behind:
            self._left = self._known

    def run(self) -> None:
        for topic in list(self._image.topics):
            self._restoration.on_progress()
            self._catch_up(topic)
        for topic in self._here.keys() | set(self._known or ()):
            if topic not in self._image.topics:
                self._keep(topic)
        self._logs.save()
        if METADATA_FILE in self._image.small:
            self._restore_metadata()

    def _catch_up(self, topic: str) -> None:
        """Bring a topic of the store up to its state, or keep what is here."""
        if self._logs.was_deleted(topic):
            self._log.info("STORE: topic %s was deleted here; its messages in the store are too old", topic)
            self._image.drop_files(topic)
            return
        if topic in self._here and self._is_other_log(topic):
            is_older = self._image.has_messages(topic) or self._is_behind
            if self._logs.is_later(topic) or not is_older:
                self._logs.keep(topic)
                self._keep_apart(topic)
                return
            self._set_aside(topic)
        left = self._left
        journals = self._journals[topic]
        if topic in self._here:
            channels = None
            if left is not None:
                channels = left.get(topic, set())
            one = TopicCatchUp(
                self._restoration,
                self._image,
                topic,
                self._logs_of(topic),
                journals,
                is_copy=self._is_copy,
                is_store_right=self._is_store_right,
            )
            one.run(channels, self._logs.common_end(topic))
            self._logs.take(topic)
        elif left is None or topic in left or self._image.has_messages(topic):
            self._log.warning("STORE: topic %s is missing here, and comes back from the store", topic)
            self._restoration.write_journals(self._image, journals)
            self._restoration.fetch(self._restoration.needed(self._image, topic, journals))
            self._logs.take(topic)

    def _keep(self, topic: str) -> None:
        """Keep a topic that the store does not have, unless it has the deletion of what is here."""
        if self._is_behind and self._logs.is_deleted_in_store(topic):
            self._delete(topic)
            self._logs.forget(topic)
        self._logs.keep(topic)

    def _restore_metadata(self) -> None:
        """Write the store's `nsqd.dat` if there is none here, or a damaged one, which is kept."""
        path = self._directory / METADATA_FILE
        try:
            if path.exists():
                read_metadata(path)
                return
        except BadMetadata as error:
            os.replace(path, path.with_name(f"{METADATA_FILE}.damaged"))
            self._log.error("STORE: %s; set aside, and written again from the store", error)
        self._restoration.write_small(self._image, METADATA_FILE)

    # ---- what is here

    def _logs_of(self, topic: str) -> list[str]:
        """Return the names of the log files of a topic here, in the order of their messages."""
        return sorted(name for name in self._here.get(topic, ()) if parse_log_file_name(name) is not None)

    def _lacks_messages(self, topic: str) -> bool:
        """True if a log here parts from the store's, or lacks its end, which nsqd had written before the store got it."""
        logs = self._logs
        if logs.common_end(topic) is not None:
            return True
        if logs.was_deleted(topic) or not self._image.has_messages(topic):
            return False
        if logs.is_other(topic):
            return not logs.is_later(topic)
        local = self._logs_of(topic)
        last = self._image.log_files(topic)[-1]
        if not local or last.name > local[-1]:
            return True
        # A compaction makes other files smaller.
        if last.name != local[-1]:
            return False
        return _ends_early(self._directory / last.name, last)

    def _is_other_log(self, topic: str) -> bool:
        """True if the log here is not the store's: its epochs are others, and its files are, too."""
        if not self._logs.is_other(topic):
            return False
        here = self._logs_of(topic)
        shared = [source for source in self._image.log_files(topic) if source.name in here]
        return not any(salt_of(self._directory / source.name) == source.salt for source in shared)

    # ---- logs of which only one can stay

    def _keep_apart(self, topic: str) -> None:
        """Keep the end of the store's log of a topic apart, since the one that is here was made later."""
        if self._image.has_messages(topic):
            needed = self._restoration.needed(self._image, topic, self._journals[topic])
            kept = [self._restoration.write_apart(source) for source in needed]
            self._log.error(
                "STORE: topic %s was made again here after the one in the store: nsqd serves the one that is here; the end of "
                "the store's is kept in %s",
                topic,
                kept[-1],
            )
        self._image.drop_files(topic)

    def _set_aside(self, topic: str) -> None:
        """Move the files of a topic here aside, since its log in the store was made later."""
        forget_clean_stop(self._directory)  # it names the end of the log that was here
        kept = move_aside(self._directory, self._here.pop(topic))
        reason = "is another one, without a record of its deletion"
        report = self._log.error
        if self._logs.is_deleted_in_store(topic):
            reason = "was deleted before"
            report = self._log.warning
        report(
            "STORE: topic %s was made again after what is here, as after a return to an old state of the disk: nsqd serves the "
            "store's; the one that was here %s, and is kept in %s",
            topic,
            reason,
            kept,
        )

    def _delete(self, topic: str) -> None:
        """Let the start delete a topic, since the store has its deletion, and this data path not yet; keep its files aside."""
        kept = move_aside(self._directory, self._here.get(topic, ()))
        replace_file(self._directory / journal_name(topic), encode_position(SavedPosition(is_deleted=True)))
        self._log.warning(
            "STORE: topic %s was deleted after what is here: it is deleted here, too, and its files are kept in %s",
            topic,
            kept,
        )


def _files_in(directory: Path) -> dict[str, list[str]]:
    """Return the names of the log files and journals in a data path by topic."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in os.listdir(directory):
        topic = topic_of(name)
        if topic is not None:
            found[topic].append(name)
    return dict(found)


def _topics_of(directory: Path) -> dict[str, set[str]] | None:
    """Return the topics of a data path, and their channels; None if they are not known."""
    if not (directory / METADATA_FILE).exists():
        return None
    try:
        return {entry.name: set(entry.channels) for entry in read_metadata(directory / METADATA_FILE)}
    except BadMetadata:
        return None


def _ends_early(path: Path, source: LogSource) -> bool:
    """True if the records of a local log file end before those that the store has. Space may be preallocated behind them."""
    if path.stat().st_size < source.size_bytes:
        return True
    if salt_of(path) != source.salt or _has_last_bytes(path, source):
        return False
    damaged = damage_in(path, source.salt, source.size_bytes)
    if not damaged:
        return False
    return damaged[-1][1] == source.size_bytes


def _has_last_bytes(path: Path, source: LogSource) -> bool:
    """True if the store has the last record in a round, and the local file has its end: a cheap answer to most questions."""
    end = b""
    if source.tail is not None:
        end = source.tail.chunks.last(_END_BYTES)
    with open(path, "rb", opener=open_file) as file:
        file.seek(source.size_bytes - len(end))
        if not end:
            return False
        return file.read(len(end)) == end
