"""Reads the objects of a store again and again, slowly, and has those repaired that are damaged.

A damaged head is written again, a damaged round is replaced by a new base, and a log file is put again from the local one. A
log file that only the store has cannot be repaired: its records that are valid are still read.

An object that the store does not give, although it gives its head, counts as damaged: it may be in an archive class, or its key
may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import gevent

from nsqd_py.errors import NsqdError
from nsqd_py.objects.calls import Exists, Missing, Objects, StoreError, StoreRefused
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import DiskThreads, in_thread
from nsqd_py.settings.durations import HOUR_NS, SECOND_NS
from nsqd_py.store.checking import check_file, round_damage, unreadable_text
from nsqd_py.store.layout import HEAD_NAME, StoredFile, aside_name, missing_text, round_name
from nsqd_py.store.log_bytes import has_bytes_of
from nsqd_py.store.ownership import Owner
from nsqd_py.store.uploading.stream import StoreStream

_DAY_S = 24 * HOUR_NS / SECOND_NS
_LEAST_PAUSE_S = 0.001
_PASS_PAUSE_S = 1.0
_CONFIRM_AFTER_S = 0.1
_RETRY_S = 60.0
# A store that does not answer for a moment makes no object unreadable.
_UNREADABLE_AFTER_S = 1.0
# Where a new base cannot be read either, the next one waits.
_BASE_PAUSE_S = 3600.0


@dataclass(eq=False, repr=False)
class StoreScrub:
    """The scrub of one store, in a greenlet; its requests are in a thread of its own.

    checked_objects, checked_bytes  since the start
    pass_count    complete passes
    last_pass_ns  wall time of the end of the last one; 0 before
    damaged       damaged objects that were found since the start, each once
    repaired      of these, those that are repaired, or that the store does not need any more
    """

    _objects: Objects
    _owner: Owner
    _stream: StoreStream
    _requests_per_day: int
    _log: Log
    checked_objects: int = 0
    checked_bytes: int = 0
    pass_count: int = 0
    last_pass_ns: int = 0
    damaged: int = 0
    repaired: int = 0
    _unrepaired: dict[str, str] = field(default_factory=dict)  # what is said of each
    _put_again: set[str] = field(default_factory=set)  # files that could not be read
    _next_base_s: float = 0.0  # for a round that cannot be read
    _threads: Any = None
    _greenlet: Any = None

    def start(self) -> None:
        """Begin, unless --store-scrub-requests=0."""
        if self._requests_per_day:
            self._threads = DiskThreads(1)
            self._threads.serve()
            self._greenlet = gevent.spawn(self._run)

    def stop(self) -> None:
        """End. A request that the thread has begun goes on."""
        if self._greenlet is not None:
            self._greenlet.kill(block=False)
            self._greenlet = None
            self._threads.stop()

    def knows(self, name: str) -> bool:
        """True if this object is among the damaged ones that are not repaired."""
        return name in self._unrepaired

    @property
    def damage(self) -> str:
        """What is damaged and not repaired: a sentence about the first object; "" if nothing is."""
        return next(iter(self._unrepaired.values()), "")

    def statistics(self) -> dict[str, Any]:
        """Return what /stats shows."""
        return {
            "requests_per_day": self._requests_per_day,
            "checked_objects": self.checked_objects,
            "checked_bytes": self.checked_bytes,
            "passes": self.pass_count,
            "last_pass": self.last_pass_ns // SECOND_NS or None,
            "damaged_objects": self.damaged,
            "repaired_objects": self.repaired,
        }

    # ---- in its greenlet

    def _run(self) -> None:
        while True:
            try:
                self._pass()
            except (StoreError, StoreRefused):  # the stream says that the store is away
                gevent.sleep(_RETRY_S)
            except Exception as error:  # noqa: BLE001 - after a bug with one object, the next pass must come
                self._log.exception("STORE: failed to check %r - %r", self._objects, error)
                gevent.sleep(_RETRY_S)
            gevent.sleep(_PASS_PAUSE_S)

    def _pass(self) -> None:
        self._check_head()
        number = max(1, self._owner.head.base)
        while number <= self._stream.last_round:
            try:
                self._check_round(number)
            except (StoreError, StoreRefused) as error:
                self._round_failed(number, error)
            number = max(number + 1, self._owner.head.base)
        for file in self._stream.files_now():
            try:
                self._check_file(file)
            except (StoreError, StoreRefused) as error:
                self._file_failed(file, error)
        self._forget()
        self.pass_count += 1
        self.last_pass_ns = time.time_ns()

    def _check_head(self) -> None:
        """Have the head written again if it is not what this writer has written. The stream's log says what it found."""
        data = self._get(HEAD_NAME)
        self._pause()
        if data is None or data == self._owner.head.encode():
            return
        gevent.sleep(_CONFIRM_AFTER_S)  # it may have been moved
        if self._get(HEAD_NAME) != self._owner.head.encode():
            self._stream.look_soon()

    def _check_round(self, number: int) -> None:
        damage, _ = self._damage_of_round(number)
        self._pause()
        if not damage and round_name(number) in self._unrepaired:  # it can be read again
            self._mark_repaired(round_name(number))
        if not damage or not self._is_needed(number):
            return
        gevent.sleep(_CONFIRM_AFTER_S)
        damage, data = self._damage_of_round(number)
        if damage and self._is_needed(number):
            if data is not None:
                self._in_thread(self._put_aside, round_name(number), data)
            self._note(round_name(number), damage, "a new base replaces it")
            self._stream.begin_base()

    def _is_needed(self, number: int) -> bool:
        return number >= max(1, self._owner.head.base)

    def _damage_of_round(self, number: int) -> tuple[str, bytes | None]:
        data = self._get(round_name(number))
        if data is None:
            return missing_text(round_name(number)), None
        return self._in_thread(round_damage, number, data), data

    def _get(self, name: str) -> bytes | None:
        """Return the content of an object; None if it is missing."""

        def get() -> bytes | None:
            with suppress(Missing):
                return self._objects.get(name)[0]
            return None

        data: bytes | None = self._in_thread(get)
        self.checked_objects += 1
        self.checked_bytes += len(data or b"")
        return data

    def _put_aside(self, name: str, data: bytes) -> None:
        with suppress(Exists):
            self._objects.create(aside_name(name, self._owner.writer), data)

    # ---- log files

    def _check_file(self, file: StoredFile) -> None:
        damage = self._damage_of_file(file)
        self.checked_objects += 1
        self.checked_bytes += file.size_bytes
        self._pause()
        if damage:
            damage = self._damage_of_file(file)
        if not self._stream.has_file(file):
            return
        if damage:
            self._repair_file(file, damage)
        elif file.name in self._unrepaired:  # somebody has put it back
            self._mark_repaired(file.name)

    def _damage_of_file(self, file: StoredFile) -> str:
        """Return what is wrong with a log file, at the pace of this scrub."""
        steps = check_file(self._objects, file)
        while True:
            damage: str | None = self._in_thread(next, steps)
            if damage is not None:
                return damage
            self._pause()

    def _repair_file(self, file: StoredFile, damage: str) -> None:
        """Put a file again from the local one, under the epoch of this writer."""
        found = self._stream.files.local_file(file)
        if found is None:
            self._note(file.name, damage, "it cannot be repaired: only the store has it")
            return
        log, local = found
        if local in log.busy_files:
            self._note(file.name, damage, f"it cannot be repaired now: {local.path.name} is in use")
            return
        again = file._replace(epoch=self._owner.epoch)
        log.busy_files.add(local)  # so that it is neither dropped nor compacted
        try:
            is_put = self._in_thread(self._put, local.path, again)
        except (OSError, StoreError, StoreRefused) as error:
            self._note(file.name, damage, f"it cannot be repaired now: {error}")
            return
        finally:
            log.busy_files.discard(local)
        if not is_put:
            self._note(file.name, damage, f"it cannot be repaired now: {local.path.name} has other bytes")
            return
        self._note(file.name, damage, f"it is put again from {local.path.name}")
        if self._stream.has_file(file):
            self._stream.replace_file(file, again)
        self._mark_repaired(file.name)

    def _put(self, path: Path, file: StoredFile) -> bool:
        if not has_bytes_of(path, file):
            return False
        self._objects.put_file(file.name, path, file.size_bytes)
        return True

    # ---- objects that cannot be read

    def _round_failed(self, number: int, error: NsqdError) -> None:
        """Have a base replace a round that cannot be read. Raises as `_is_unreadable` does."""
        name = round_name(number)
        if self._is_unreadable(name) and self._is_needed(number):
            self._note(name, unreadable_text(name, error), "a new base replaces it")
            now_s = monotonic()
            if now_s >= self._next_base_s:
                self._next_base_s = now_s + _BASE_PAUSE_S
                self._stream.begin_base()

    def _file_failed(self, file: StoredFile, error: NsqdError) -> None:
        """Repair a file that cannot be read, once. Raises as `_is_unreadable` does."""
        if not (self._is_unreadable(file.name) and self._stream.has_file(file)):
            return
        damage = unreadable_text(file.name, error)
        if file.name in self._put_again:
            self._note(file.name, damage, "it was put again, and cannot be read either")
            return
        self._repair_file(file, damage)
        if file.name not in self._unrepaired:
            self._put_again.add(file._replace(epoch=self._owner.epoch).name)

    def _is_unreadable(self, name: str) -> bool:
        """True if the store gives its head, and not this object. Raises StoreError or StoreRefused if it gives neither."""
        gevent.sleep(_UNREADABLE_AFTER_S)
        self._get(HEAD_NAME)
        self._pause()
        try:
            self._in_thread(self._objects.get_range, name, 0, 1)
        except (StoreError, StoreRefused):
            return True
        except Missing:
            pass
        return False

    # ---- what was found

    def _note(self, name: str, damage: str, remedy: str) -> None:
        """Count damage once, and say it when there is something new."""
        if name not in self._unrepaired:
            self.damaged += 1
        text = f"{damage}; {remedy}"
        if self._unrepaired.get(name) != text:
            self._log.error("STORE: %s", text)
        self._unrepaired[name] = text

    def _mark_repaired(self, name: str) -> None:
        del self._unrepaired[name]
        self.repaired += 1

    def _forget(self) -> None:
        """Count what the store does not need any more as repaired: a base has replaced it, or it was released."""
        if not self._unrepaired:
            return
        base = self._owner.head.base
        needed = {file.name for file in self._stream.files_now()}
        for name in list(self._unrepaired):
            if name not in needed and (name.startswith("files/") or name < round_name(base)):
                self._mark_repaired(name)

    # ---- pace

    def _pause(self) -> None:
        gevent.sleep(max(_LEAST_PAUSE_S, _DAY_S / self._requests_per_day))

    def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `work` returns in the thread of this scrub."""
        return in_thread(self._threads, work, *arguments)
