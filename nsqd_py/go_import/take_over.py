"""Starting on a data directory of Go's nsqd: everything is imported, and Go's files are moved aside."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nsqd_py.broker.state_files import METADATA_FILE, TopicEntry, read_metadata
from nsqd_py.errors import StartError
from nsqd_py.go_import.existing import ExistingFiles
from nsqd_py.go_import.go_queue import GoDamage, GoQueue, find_go_queues
from nsqd_py.go_import.moving import ImportFolder, Marker
from nsqd_py.go_import.topics import GoTopic, ImportedTopic, import_topic
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime.logs import Log

_MOST_DAMAGES = 1000  # a completely damaged file must not fill the log


def take_over(directory: Path, max_file_bytes: int, log: Log, now_s: float, on_progress: Callable[[], None]) -> None:
    """Import the files of Go's nsqd in the directory, if there are any, and finish an interrupted import.

    `on_progress` is called now and then, and may raise. Raises StartError; then Go's files are unchanged.
    """
    folder = ImportFolder(directory)
    try:
        marker = folder.committed()
        if marker is not None:
            log.info("IMPORT: going on with the one that was cut short")
            folder.finish(marker)
        queues = find_go_queues(directory)
        if not queues:
            folder.discard()
            return
        log.info("IMPORT: there are files of Go's nsqd in %s", directory)
        importer = _Importer(directory, folder, max_file_bytes, log, on_progress)
        marker = importer.run(queues, now_s)
        folder.finish(marker)
    except OSError as error:
        raise StartError(f"failed to import the files of Go's nsqd, which are kept - {error}") from error
    log.info("IMPORT: done; the files of Go's nsqd are in %s", directory / marker.aside)


class _Importer:
    """One import."""

    def __init__(
        self, directory: Path, folder: ImportFolder, max_file_bytes: int, log: Log, on_progress: Callable[[], None]
    ) -> None:
        self._directory = directory
        self._folder = folder
        self._max_file_bytes = max_file_bytes
        self._log = log
        self._on_progress = on_progress
        self._damages: dict[GoDamage, None] = {}

    def run(self, queues: list[GoQueue], now_s: float) -> Marker:
        """Do everything up to the commit. Raises OSError and StartError."""
        self._folder.begin()
        try:
            names = [name for queue in queues for name in queue.names]
            imported = list(self._import(self._topics(queues)))
            summary = self._summary(imported)
            utc = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
            marker = self._folder.commit(names, utc, summary)
        except BaseException:
            with contextlib.suppress(OSError, StartError):  # the next start removes the rest
                self._folder.discard()
            raise
        self._report(imported, summary, marker)
        return marker

    def _note_damage(self, damage: GoDamage) -> None:
        """Note damage once, even if the file is read several times."""
        if len(self._damages) < _MOST_DAMAGES:
            self._damages[damage] = None

    # ---- what there is

    def _topics(self, queues: list[GoQueue]) -> list[GoTopic]:
        """Return the topics that `nsqd.dat` names, and those that have messages."""
        entries = self._entries()
        topics = {entry.name: _go_topic(entry) for entry in entries or () if _may_last(entry.name)}
        for queue in queues:
            if not (_may_last(queue.topic) and (queue.channel is None or _may_last(queue.channel))):
                self._note_damage(GoDamage(queue.names[0], 0, 0, "this is no name of a topic or channel"))
                continue
            topic = topics.get(queue.topic)
            if topic is None and (queue.may_have_messages or entries is None):
                topic = topics[queue.topic] = GoTopic(queue.topic, is_named=entries is not None)
            if topic is None:
                continue
            if queue.channel is None:
                topic.queue = queue
            elif queue.may_have_messages or entries is None or queue.channel in topic.channels:
                topic.channels[queue.channel] = queue
        return list(topics.values())

    def _entries(self) -> list[TopicEntry] | None:
        """Return the topics of `nsqd.dat`; None if there is no file, or it is invalid."""
        path = self._directory / METADATA_FILE
        try:
            return read_metadata(path) if path.exists() else None
        except StartError as error:
            self._log.error("IMPORT: %s", error)
            return None

    def _import(self, topics: list[GoTopic]) -> Iterator[ImportedTopic]:
        existing = ExistingFiles(self._directory)
        for topic in topics:
            self._on_progress()
            yield import_topic(
                topic, existing.topic(topic.name), self._folder.path, self._max_file_bytes, self._note_damage, self._on_progress
            )

    # ---- what is said about it

    def _summary(self, imported: list[ImportedTopic]) -> dict[str, Any]:
        return {
            "topics": len(imported),
            "channels": sum(len(topic.channels) for topic in imported),
            "messages": sum(topic.message_count for topic in imported),
            "bytes": sum(topic.size_bytes for topic in imported),
            "damaged": [
                {"file": damage.file, "start": damage.start, "end": damage.end, "reason": damage.reason}
                for damage in self._damages
            ],
        }

    def _report(self, imported: list[ImportedTopic], summary: dict[str, Any], marker: Marker) -> None:
        for topic in imported:
            if topic.message_count:
                counts = ", ".join(f"{count} for channel {name}" for name, count in topic.channels.items() if count)
                self._log.info(
                    "IMPORT: TOPIC(%s): %d unreleased%s", topic.name, topic.unreleased, f", {counts}" if counts else ""
                )
        for damage in self._damages:
            self._log.error(
                "IMPORT: %s: bytes %d to %d: %s; kept in %s", damage.file, damage.start, damage.end, damage.reason, marker.aside
            )
        self._log.info(
            "IMPORT: %d topics, %d channels, %d messages, %d bytes; %d damaged places",
            summary["topics"],
            summary["channels"],
            summary["messages"],
            summary["bytes"],
            len(self._damages),
        )


def _go_topic(entry: TopicEntry) -> GoTopic:
    return GoTopic(entry.name, entry.is_paused, channels={name: None for name in entry.channels if _may_last(name)})


def _may_last(name: str) -> bool:
    return is_valid_name(name.encode()) and not is_ephemeral(name)
