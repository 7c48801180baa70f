"""Starting on a data directory of Go's nsqd: everything is imported, and Go's files are moved aside.

`ImportFolder` moves the files, `take_over` imports them.

New files are moved into the data path and old ones aside exactly once, even if the process is killed: everything is written into
the folder `import/`. Its marker file commits the import: without it the folder is thrown away, with it every start finishes
the remaining moves. The last move takes the marker itself to the old files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from nsqd_py.broker.metadata import TopicEntry, read_metadata
from nsqd_py.broker.state_files import METADATA_FILE
from nsqd_py.diskqueue.files.log_file import parse_log_file_name, replace_file, sync_directory
from nsqd_py.diskqueue.journals.journal import JOURNAL_SUFFIX
from nsqd_py.diskqueue.recovery import TopicFiles, find_topic_files
from nsqd_py.errors import StartError
from nsqd_py.go_import import FOLDER
from nsqd_py.go_import.go_queue import GoDamage, GoQueue, find_go_queues
from nsqd_py.go_import.topics import GoTopic, ImportedTopic, TopicImport, existing_topic
from nsqd_py.protocol.names import is_ephemeral, is_valid_name
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.private_files import make_directory, open_directory

MARKER = "imported.json"
_SYNCS_AT_ONCE = 16  # file systems commit many syncs at once
_OWN_SUFFIXES = (JOURNAL_SUFFIX, ".tmp")
_MOST_DAMAGES = 1000  # a completely damaged file must not fill the log


# ---- the moves of files


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file as it was when it was read. If it was written to since then, it stays, and is reread."""

    name: str
    size_bytes: int
    modified_ns: int


@dataclass(slots=True)
class Marker:
    """The record of an import.

    aside    the name of the folder for the old files
    new      names of the files that were written
    old      the files that were read
    summary  counts for people to read
    """

    aside: str
    new: list[str]
    old: list[OldFile]
    summary: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def decode(cls, data: bytes) -> Marker:
        fields = orjson.loads(data)
        return cls(
            fields["aside"], fields["new"], [OldFile(**old) for old in fields["old"]], fields["summary"]
        )


class ImportFolder:
    """The folder `import/` of a data directory. All methods raise OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / FOLDER

    def discard(self) -> None:
        """Delete an import that was never committed. Raises StartError, with nothing done, if the folder holds other files."""
        self._check()
        if not self.path.is_dir():
            return
        paths = list(self.path.iterdir())
        for path in paths:
            is_log = parse_log_file_name(path.name) is not None
            if not (is_log or path.name.endswith(_OWN_SUFFIXES)):
                raise StartError(f"{path} is in the way of an import; move it elsewhere")
        for path in paths:
            path.unlink()
        self.path.rmdir()

    def _check(self) -> None:
        """Raise OSError if the folder is a symbolic link: the files at its target are of another user."""
        if self.path.is_symlink():
            os.close(open_directory(self.path))

    def committed(self) -> Marker | None:
        """Return the marker of a committed import that is unfinished, or None."""
        self._check()
        try:
            return Marker.decode((self.path / MARKER).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def commit(self, old_names: Iterable[str], now: str, summary: dict[str, Any]) -> Marker:
        """Commit the import; `now` names the folder for the old files."""
        aside = f"go-nsqd-{now}"
        while os.path.lexists(self._directory / aside):
            aside += "-again"
        old = [_as_it_is(self._directory / name) for name in old_names]
        new = sorted(self.path.iterdir())
        sync_files(new)
        sync_directory(self.path)
        sync_directory(self._directory)
        marker = Marker(aside, [path.name for path in new], old, summary)
        document = orjson.dumps(asdict(marker), option=orjson.OPT_INDENT_2)
        replace_file(self.path / MARKER, document)
        return marker

    def finish(self, marker: Marker) -> None:
        """Do the remaining moves."""
        directory = self._directory
        for name in marker.new:
            _move(self.path / name, directory / name)
        sync_directory(directory)
        sync_directory(self.path)  # durable before nsqd appends to them under their new names
        aside = directory / marker.aside
        make_directory(aside)
        if not (aside / METADATA_FILE).exists():
            with contextlib.suppress(FileNotFoundError):
                replace_file(aside / METADATA_FILE, (directory / METADATA_FILE).read_bytes())
        for old in marker.old:
            with contextlib.suppress(FileNotFoundError):
                if _as_it_is(directory / old.name) == old:
                    _move(directory / old.name, aside / old.name)
        sync_directory(aside)
        sync_directory(directory)
        _move(self.path / MARKER, aside / MARKER)
        sync_directory(aside)
        sync_directory(self.path)
        self.discard()
        sync_directory(directory)


def _as_it_is(path: Path) -> OldFile:
    status = path.stat()
    return OldFile(path.name, status.st_size, status.st_mtime_ns)


def sync_files(paths: Iterable[Path]) -> None:
    """Sync files, many at once. Raises OSError."""
    with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
        for _ in pool.map(_sync_file, paths):
            pass


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _move(source: Path, target: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rename(source, target)


# ---- the import


def take_over(
    directory: Path, max_file_bytes: int, log: Log, now_s: float, on_progress: Callable[[], None]
) -> None:
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


@dataclass(slots=True)
class _Importer:
    """Imports the files of one directory, up to the commit."""

    directory: Path
    folder: ImportFolder
    max_file_bytes: int
    log: Log
    on_progress: Callable[[], None]
    damages: list[GoDamage] = field(default_factory=list)
    # Queues of ephemeral topics or channels, with messages.
    ephemeral: list[str] = field(default_factory=list)

    def run(self, queues: list[GoQueue], now_s: float) -> Marker:
        """Import all queues, and commit that. Raises OSError and StartError."""
        self.folder.discard()
        self.folder.path.mkdir(mode=0o700)
        try:
            names = [name for queue in queues for name in queue.names]
            imported = list(self._import(self._topics(queues)))
            summary = self._summary(imported)
            utc = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now_s))
            marker = self.folder.commit(names, utc, summary)
        except BaseException:
            with contextlib.suppress(OSError, StartError):  # the next start removes the rest
                self.folder.discard()
            raise
        self._report(imported, summary, marker)
        return marker

    def _note_damage(self, damage: GoDamage) -> None:
        if len(self.damages) < _MOST_DAMAGES:
            self.damages.append(damage)

    # ---- what there is

    def _topics(self, queues: list[GoQueue]) -> list[GoTopic]:
        """Return the topics that `nsqd.dat` names, and those that have messages."""
        entries = self._entries()
        topics = {entry.name: _go_topic(entry) for entry in entries or () if may_last(entry.name)}
        for queue in queues:
            if _is_of_ephemeral(queue):
                if queue.may_have_messages:
                    self.ephemeral.append(queue.name)
                continue
            if not (may_last(queue.topic) and (queue.channel is None or may_last(queue.channel))):
                self._note_damage(GoDamage(queue.names[0], 0, 0, "this is no name of a topic or channel"))
                continue
            topic = topics.get(queue.topic)
            if topic is None and (queue.may_have_messages or entries is None):
                topic = GoTopic(queue.topic, is_named=entries is not None)
                topics[queue.topic] = topic
            if topic is None:
                continue
            if queue.channel is None:
                topic.queue = queue
            elif queue.may_have_messages or entries is None or queue.channel in topic.channels:
                topic.channels[queue.channel] = queue
        return list(topics.values())

    def _entries(self) -> list[TopicEntry] | None:
        """Return the topics of `nsqd.dat`; None if there is no file, or it is invalid."""
        path = self.directory / METADATA_FILE
        try:
            if path.exists():
                return read_metadata(path)
            return None
        except StartError as error:
            self.log.error("IMPORT: %s", error)
            return None

    def _import(self, topics: list[GoTopic]) -> Iterator[ImportedTopic]:
        files, _ = find_topic_files(self.directory)
        for topic in topics:
            self.on_progress()
            existing = existing_topic(files.get(topic.name, TopicFiles()))
            folder = self.folder.path
            most = self.max_file_bytes
            yield TopicImport(topic, existing, folder, most, self._note_damage, self.on_progress).run()

    # ---- the report

    def _summary(self, imported: list[ImportedTopic]) -> dict[str, Any]:
        return {
            "topics": len(imported),
            "channels": sum(len(topic.channels) for topic in imported),
            "messages": sum(topic.message_count for topic in imported),
            "bytes": sum(topic.size_bytes for topic in imported),
            "ephemeral": self.ephemeral,
            "damaged": [asdict(damage) for damage in self.damages],
        }

    def _report(self, imported: list[ImportedTopic], summary: dict[str, Any], marker: Marker) -> None:
        for topic in imported:
            if topic.message_count:
                counts = ", ".join(
                    f"{count} for channel {name}" for name, count in topic.channels.items() if count
                )
                self.log.info(
                    "IMPORT: TOPIC(%s): %d unreleased%s",
                    topic.name,
                    topic.unreleased,
                    f", {counts}" if counts else "",
                )
        for name in self.ephemeral:
            self.log.info(
                "IMPORT: %s: not imported, since an ephemeral topic ends with its nsqd; kept in %s",
                name,
                marker.aside,
            )
        for damage in self.damages:
            self.log.error(
                "IMPORT: %s: bytes %d to %d: %s; kept in %s",
                damage.file,
                damage.start,
                damage.end,
                damage.reason,
                marker.aside,
            )
        self.log.info(
            "IMPORT: %d topics, %d channels, %d messages, %d bytes; %d damaged places",
            summary["topics"],
            summary["channels"],
            summary["messages"],
            summary["bytes"],
            len(self.damages),
        )


def _go_topic(entry: TopicEntry) -> GoTopic:
    return GoTopic(
        entry.name, entry.is_paused, channels={name: None for name in entry.channels if may_last(name)}
    )


def _is_of_ephemeral(queue: GoQueue) -> bool:
    """True if it is of an ephemeral topic, or channel. Go's nsqd writes one for a lasting channel of an ephemeral topic."""
    if queue.channel is None:
        names = [queue.topic]
    else:
        names = [queue.topic, queue.channel]
    if not all(is_valid_name(name.encode()) for name in names):
        return False
    return any(map(is_ephemeral, names))


def may_last(name: str) -> bool:
    """True if it is the name of a topic or channel that is stored on disk."""
    return is_valid_name(name.encode()) and not is_ephemeral(name)
