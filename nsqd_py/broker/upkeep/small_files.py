"""Small files that another program removed while nsqd uses them: positions, `nsqd.dat`, and those with a checksum."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from nsqd_py.broker.services import BrokerServices, Topic
from nsqd_py.broker.state_files import CLOCK_FILE, MEMBER_FILE, METADATA_FILE, STANDBYS_FILE, STORE_FILE
from nsqd_py.diskqueue.files.log_file import replace_file
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.diskqueue.journals.journal import journal_name
from nsqd_py.queue.channel import Channel
from nsqd_py.runtime.private_files import Stamp, read_bytes, stamp_of
from nsqd_py.runtime.threads import Job

_CHECK_EVERY_NS = 1_000_000_000
_CHECKED_AT_ONCE = 500  # positions: 1.4 ms of processor, however many channels a topic has
# nsqd writes these seldom, and never removes them.
_KEPT = (CLOCK_FILE, MEMBER_FILE, STANDBYS_FILE, STORE_FILE)


@dataclass(eq=False, repr=False)
class _Look:
    """One look at the files, which a thread takes.

    topics     topics whose own position is looked for
    channels   channels that have a position on the disk
    metadata   `nsqd.dat` and what is written with it
    missing    the paths of those that there are not
    rewritten  the names of those that the thread has written again
    """

    directory: Path
    topics: dict[Path, Topic]
    channels: dict[Path, tuple[Topic, Channel]]
    metadata: list[Path]
    missing: list[Path] = field(default_factory=list)
    rewritten: list[str] = field(default_factory=list)


class SmallFiles:
    """Finds small files that another program removed, within a second or some, and has them written again.

    Without that, nsqd writes them when something changes, which may be never: after a kill, channels would be missing.
    """

    def __init__(
        self,
        services: BrokerServices,
        topics: Mapping[str, Topic],
        write_metadata: Callable[[], None],
        rewrite_position: Callable[[Channel], None],
        write_held: Callable[[Topic], None],
        *,
        keeps_epochs: Callable[[], bool],
    ) -> None:
        """Make a check that does not run yet.

        write_metadata    writes `nsqd.dat`, and `nsqd.epochs` if `keeps_epochs` returns True
        rewrite_position  writes the position of a channel
        write_held        writes the position of a topic
        """
        self._services = services
        self._topics = topics
        self._write_metadata = write_metadata
        self._rewrite_position = rewrite_position
        self._write_held = write_held
        self._keeps_epochs = keeps_epochs
        self._to_check: Iterator[tuple[Topic, Channel | None]] = iter(())
        self._with_position: set[Topic] = set()  # topics whose own position was seen
        # Of the files that are kept; used by one thread at a time.
        self._contents: dict[str, tuple[Stamp, bytes]] = {}
        self._alarm = services.alarms.alarm(self._check)
        self._is_running = False

    def start(self) -> None:
        """Check once a second."""
        self._is_running = True
        self._check(self._services.clock())

    def stop(self) -> None:
        self._is_running = False
        self._alarm.set(None)

    def _check(self, now_ns: int) -> None:
        if self._services.data_path.problem:
            checked = []
        else:
            checked = self._next_positions()
        try:
            look = self._make_look(checked)
            self._services.threadpool.begin(self._look, (look,), lambda job: self._found(look, job))
        except RuntimeError:  # the system has no more threads
            self._alarm.set(now_ns + _CHECK_EVERY_NS)

    def _next_positions(self) -> list[tuple[Topic, Channel | None]]:
        """Return the next positions to look for; None stands for that of the topic itself."""
        checked = list(islice(self._to_check, _CHECKED_AT_ONCE))
        if len(checked) < _CHECKED_AT_ONCE:
            self._to_check = self._all_positions()
        return checked

    def _all_positions(self) -> Iterator[tuple[Topic, Channel | None]]:
        for topic in list(self._topics.values()):
            yield topic, None
            for channel in list(topic.channels.values()):
                yield topic, channel

    def _make_look(self, checked: list[tuple[Topic, Channel | None]]) -> _Look:
        directory = self._services.directory
        topics: dict[Path, Topic] = {}
        channels: dict[Path, tuple[Topic, Channel]] = {}
        for topic, channel in checked:
            if topic.log is None or topic.is_closed:
                continue
            if channel is None:
                topics[directory / journal_name(topic.name)] = topic
            elif channel.journal is not None and channel.journal.size_bytes:
                channels[directory / journal_name(topic.name, channel.name)] = topic, channel
        metadata = [directory / METADATA_FILE]
        if self._keeps_epochs():
            metadata.append(directory / EPOCHS_FILE)
        return _Look(directory, topics, channels, metadata)

    def _look(self, look: _Look) -> None:
        """Look for the files; runs in a thread. Raises OSError."""
        if not self._services.data_path.is_here():
            return
        for name in _KEPT:
            self._keep(look, name)
        # The directory may have gone in the meantime.
        missing = []
        for path in (*look.metadata, *look.channels, *look.topics):
            if not os.path.lexists(path):
                missing.append(path)
        if self._services.data_path.is_here():
            look.missing = missing

    def _keep(self, look: _Look, name: str) -> None:
        """Remember the content of a file, or write it again."""
        path = look.directory / name
        stamp = stamp_of(str(path))
        known = self._contents.get(name)
        if stamp is not None and (known is None or known[0] != stamp):
            self._contents[name] = stamp, read_bytes(path)
        elif stamp is None and known is not None and not os.path.lexists(path):
            replace_file(path, known[1])
            look.rewritten.append(name)

    def _found(self, look: _Look, job: Job) -> None:
        if not self._is_running:  # nsqd has ended in the meantime
            return
        self._alarm.set(self._services.clock() + _CHECK_EVERY_NS)
        try:
            job.end()
        except OSError as error:  # the next check tries again
            self._services.log.of_clients.error("NSQ: failed to check the small files - %s", error)
        for name in look.rewritten:
            self._report(name)
        missing = set(look.missing)
        gone_metadata = [path.name for path in look.metadata if path in missing]
        for name in gone_metadata:
            self._report(name)
        if gone_metadata:
            self._write_metadata()
        for path, (topic, channel) in look.channels.items():
            if path in missing and topic.channels.get(channel.name) is channel and not topic.is_closed:
                self._report(path.name)
                self._rewrite_position(channel)
        for path, topic in look.topics.items():
            self._found_position(topic, path, is_missing=path in missing)

    def _found_position(self, topic: Topic, path: Path, *, is_missing: bool) -> None:
        """Handle the own position of a topic, which not each topic has."""
        if not is_missing:
            self._with_position.add(topic)
        elif topic in self._with_position:
            self._with_position.discard(topic)
            if not topic.is_closed and (topic.is_held or not topic.has_journals):
                self._report(path.name)
                self._write_held(topic)

    def _report(self, name: str) -> None:
        self._services.log.of_clients.warning(
            "NSQ: %s was removed while it was in use, and is written again", name
        )

    def forget(self, topic: Topic) -> None:
        self._with_position.discard(topic)
