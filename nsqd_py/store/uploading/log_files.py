"""Log files on their way into the store, and out of it.

A file has four stations: it is put as an object; a round names it; a later round removes it from the state; then it can be
deleted. A base names all files. Those that are put for a base wait for it: until then, rounds continue the files that the
base before it has named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Any, NamedTuple

import gevent

from nsqd_py.broker.broker import Broker
from nsqd_py.objects.calls import Objects
from nsqd_py.store.files import Retention, StoredFiles, Upload
from nsqd_py.store.layout import StoredFile
from nsqd_py.store.ownership import Owner
from nsqd_py.store.rounds import files_frame
from nsqd_py.store.uploading.calls import StoreCalls
from nsqd_py.store.uploading.local_damage import LocalDamage

_LOOK_AGAIN_S = 10.0  # at damage, which is being repaired
_LISTED_AT_ONCE = 200  # files in a frame: 0.5 ms of processor


class FileChanges(NamedTuple):
    """The files that a round names, and those that it removes."""

    added: list[StoredFile]
    removed: list[StoredFile]

    def frames(self) -> Iterator[bytes]:
        if self.added or self.removed:
            removed = [file.name for file in self.removed]
            yield files_frame(self.added, removed)


class FileUploads:
    """Puts log files into the store in a greenlet, while rounds go on.

    files   the log files of the store, as its rounds say
    damage  on the disk, because of which bases wait
    """

    def __init__(
        self, broker: Broker, objects: Objects, owner: Owner, calls: StoreCalls, files: StoredFiles
    ) -> None:
        self._broker = broker
        self._objects = objects
        self._owner = owner
        self._calls = calls
        self.files = files
        self.damage = LocalDamage(broker, files)
        self._next = FileChanges([], [])  # what the next round says
        self._removing: list[StoredFile] = []  # that the round removes which is being put
        self._prepared: list[tuple[Upload, StoredFile]] = []  # that the next base names
        self._unused: list[StoredFile] = []  # that no round names, and that can be deleted
        self._is_preparing = False
        self._look_again_s = 0.0  # when damage was found
        self._greenlet: Any = None

    # ---- its greenlet

    @property
    def is_ready(self) -> bool:
        """True if no file is being put."""
        return self._greenlet is None or self._greenlet.ready()

    @property
    def is_base_ready(self) -> bool:
        """True if the log files for a base are put, and the disk has nothing damaged that the base would take."""
        return self.is_ready and not self.damage.found

    def start(self) -> None:
        """Begin to put the files that have become complete, unless it is under way."""
        if self.is_ready:
            self._greenlet = gevent.spawn(self._try_to_put_files, is_base=False)

    def prepare_base(self) -> None:
        """Begin to put the files for the next base, unless that was done before."""
        if self.damage.found and monotonic() >= self._look_again_s:
            self._is_preparing = False
        if not self._is_preparing:
            self.join()
            self._is_preparing = True
            self._greenlet = gevent.spawn(self._prepare_base)

    def join(self) -> None:
        """Wait until no file is being put."""
        if self._greenlet is not None:
            self._greenlet.join()

    def stop(self) -> None:
        """End at once. A request that a thread has begun goes on."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)

    # ---- putting

    def _prepare_base(self) -> None:
        try:
            self.damage.look()
        except OSError as error:
            self._broker.log.error("STORE: cannot check a log file - %s", error)
        self._look_again_s = monotonic() + _LOOK_AGAIN_S
        if not self.damage.found:
            self._try_to_put_files(is_base=True)

    def _try_to_put_files(self, *, is_base: bool) -> None:
        try:
            self._put_files(is_base=is_base)
        except OSError as error:
            self._broker.log.error("STORE: cannot store a log file - %s", error)

    def _put_files(self, *, is_base: bool) -> None:
        """Put the log files that must be objects. Raises OSError. Blocks this greenlet."""
        for topic in list(self._broker.topics.values()):
            retention = Retention.of(self._broker.options, topic.name)
            is_retained = bool(retention)
            if not is_base and not is_retained:
                continue
            uploads = list(self.files.uploads(topic, is_base=is_base, is_retained=is_retained))
            for upload in uploads:
                self._put(upload, is_base=is_base)

    def _put(self, upload: Upload, *, is_base: bool) -> None:
        found: list[StoredFile] = []
        try:
            if not is_base and self.damage.is_in(upload.topic, upload.file):  # rounds have the right bytes
                return
            self._calls.call(self._put_file, upload, found)
        except FileNotFoundError:  # it was dropped in the meantime
            return
        file = found[0]
        if is_base:
            self._prepared.append((upload, file))
        elif upload.is_current:
            self._use(file)
            self._next.added.append(file)
        else:  # its bytes may be those of another file, which has its space
            self._unused.append(file)

    def _put_file(self, upload: Upload, found: list[StoredFile]) -> None:
        """Put one file; runs in a thread."""
        file = upload.describe(self._owner.epoch)
        self._objects.put_file(file.name, upload.file.path, file.size_bytes)
        found.append(file)

    def _use(self, file: StoredFile) -> None:
        """Continue this file from now on, instead of an earlier part of it."""
        self.files.unnamed.add(file.name)
        before = self.files.add(file)
        if before is not None and before.name != file.name:
            self._next.removed.append(before)

    # ---- files that the scrub has put again

    def replace(self, file: StoredFile) -> None:
        """Let the next round name a file that was put again under another name."""
        self._use(file)
        self._next.added.append(file)

    # ---- what bases and rounds say

    def lacking_bytes(self) -> int:
        """Return how many bytes of nsqd's log files are in no object."""
        size_bytes = sum(self.files.lacking_bytes(topic) for topic in self._broker.topics.values())
        for upload, file in self._prepared:
            before = self.files.of_file(file.topic, upload.file)
            size_bytes -= file.size_bytes - (before.size_bytes if before is not None else 0)
        return max(0, size_bytes)

    @property
    def are_changed(self) -> bool:
        """True if the next round has something to say of files."""
        return bool(self._next.added or self._next.removed)

    @property
    def has_added(self) -> bool:
        """True if no round has named a file yet that is in the store."""
        return bool(self._next.added)

    def take_changes(self) -> FileChanges:
        """Return what a round says that begins now. Call `delete_removed` when it is stored.

        A round removes first, and then adds: so it must not have one file in both lists.
        """
        changes = self._next
        if changes.added and changes.removed:
            changes = self._without_both(changes)
        self._next = FileChanges([], [])
        self._removing += changes.removed
        return changes

    def _without_both(self, changes: FileChanges) -> FileChanges:
        """Return the changes without those that cancel each other: a file that is there now is added, and others removed."""
        added = {file.name for file in changes.added}
        removed = {file.name for file in changes.removed}
        here = {file.name for file in [*changes.added, *changes.removed] if file in self.files}
        gone = (added & removed) - here
        returned = added & removed & here
        self.files.unnamed -= gone
        return FileChanges(
            added=[file for file in changes.added if file.name not in gone],
            removed=[file for file in changes.removed if file.name not in returned],
        )

    def complete_base(self) -> int:
        """Put what a base needs that begins now. Return the size of the files that were put for it. Raises OSError."""
        self.join()
        if not self.damage.is_known:
            self.damage.look()
        self.forget_deleted_topics()
        size_bytes = self._use_prepared()
        self._put_files(is_base=True)  # what has come since
        size_bytes += self._use_prepared()
        self._next.added.clear()  # the base names all files
        self.release()
        self.forget_deleted_topics()
        for topic in list(self._broker.topics.values()):
            self._next.removed.extend(self.files.forget_replaced(topic))
        self._is_preparing = False
        return size_bytes

    def _use_prepared(self) -> int:
        """Let the base that begins name the files that were put for it. Return their size."""
        prepared = self._prepared
        self._prepared = []
        for upload, file in prepared:
            if upload.is_current:
                self._use(file)
            else:
                self._unused.append(file)
        return sum(file.size_bytes for _, file in prepared)

    def frames_of_base(self) -> Iterator[bytes]:
        """Yield the list of all files."""
        files = list(self.files)
        for start in range(0, len(files), _LISTED_AT_ONCE):
            end = start + _LISTED_AT_ONCE
            yield files_frame(files[start:end])

    def are_named(self, files: Iterable[StoredFile]) -> None:
        """Let nsqd drop its own files, since a round that counts has named those of the store.

        The next round names those that have come while this one was put.
        """
        unnamed = self.files.unnamed
        named = unnamed.difference(file.name for file in self._next.added)
        new = [file for file in files if file.name in named]
        for file in new:
            unnamed.discard(file.name)
            topic = self._broker.topics.get(file.topic)
            if topic is not None:
                self._broker.housekeeper.check_soon(topic)

    def delete_removed(self) -> None:
        """Have objects deleted that no round names any more, also those that a round removed which was not stored."""
        files = [*self._removing, *self._unused]
        self._removing = []
        self._unused = []
        if files:
            self._owner.drop_files([file.name for file in files])

    # ---- what the store needs no more

    def removing(self, files: list[StoredFile]) -> bytes:
        """Return the frame that removes these files within a round."""
        self._next.removed.extend(files)  # the next round names them again, and then they can be deleted
        return files_frame((), [file.name for file in files])

    def forget_deleted_topics(self) -> None:
        """Forget the stored files of topics that were deleted."""
        topics = self._broker.topics
        stored = {file.topic for file in self.files}
        for name in stored.union(topics):
            topic = topics.get(name)
            log = topic.log if topic is not None else None
            others = self.files.forget_others(name, log)
            self._next.removed.extend(others)

    def release(self) -> None:
        """Let go of the stored files that neither a channel nor retention needs."""
        now_ns = self._broker.services.wall_clock()
        steady_ns = self._broker.clock()
        for topic in list(self._broker.topics.values()):
            retention = Retention.of(self._broker.options, topic.name)
            unneeded = self.files.unneeded(topic, retention, now_ns, steady_ns)
            for file in unneeded:
                self.files.remove(file)
                self._next.removed.append(file)
