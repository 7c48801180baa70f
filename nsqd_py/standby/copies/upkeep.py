"""The upkeep of a standby's copy: finds what is wrong with its files, and repairs it from the primary.

A file that another program removes, cuts or replaces is copied again through the stream. Damaged bytes are fetched and
written at their offsets, so that good bytes of this copy stay, which the primary may need one day.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gevent
from gevent.event import Event

from nsqd_py.broker.data_path import DataPath
from nsqd_py.broker.upkeep.scrub import ScrubbedFile, damage_text
from nsqd_py.diskqueue.checking import damage_in
from nsqd_py.diskqueue.journals.ranges import Range, count_of
from nsqd_py.errors import NsqdError
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.runtime.threads import in_thread
from nsqd_py.server.options import NsqdOptions
from nsqd_py.standby.copies.copy import Copy
from nsqd_py.standby.copies.damage import CopyDamage, KnownFile, changed_files
from nsqd_py.standby.copies.data_path import topic_of
from nsqd_py.standby.repairs.repair import RepairedFile, repair_ranges

_POLL_INTERVAL_S = 1.0
_FILES_AT_ONCE = 2000
_MOST_LINES = 10
_RETRY_S = 30.0


@dataclass(eq=False, repr=False)
class Upkeep:
    """The upkeep of one copy, and the files of the copy for the scrub.

    damage       what is wrong now
    _copy_again  ends the connection, so that the next offer says what must be sent again
    _place       says whether the directory is still that of the copy; else nothing is checked or repaired
    """

    _options: NsqdOptions
    _directory: Path
    _threadpool: Any
    _log: Log
    _copy: Copy
    _copy_again: Callable[[], None]
    _place: DataPath

    def __post_init__(self) -> None:
        self.damage = CopyDamage()
        self._reported: dict[str, str] = {}
        self._wake = Event()
        self._greenlets: list[Any] = []

    def start(self) -> None:
        self._greenlets = [gevent.spawn(self._watch), gevent.spawn(self._mend)]

    def stop(self) -> None:
        """End both greenlets. Blocks this one."""
        gevent.killall(self._greenlets)

    # ---- changed files

    def _watch(self) -> None:
        """Check some of the files each second, in turn."""
        files: list[KnownFile] = []
        while True:
            gevent.sleep(_POLL_INTERVAL_S)
            if not self._place.is_here():
                self._copy_again()  # the next connection says why it cannot follow
                continue
            files = files or self._copy.known_files()
            checked = files[:_FILES_AT_ONCE]
            files = files[_FILES_AT_ONCE:]
            if not self.damage.changed and self.check(checked):
                self._copy_again()

    def check(self, files: list[KnownFile]) -> bool:
        """Return True if another program has changed some of these files, which must be copied again."""
        found = in_thread(self._threadpool, changed_files, self._directory, files)
        # In the meantime, the primary may have removed or replaced some.
        still_known = []
        if found:
            still_known = [file for file in self._copy.known_files() if file.name in found]
        changed = changed_files(self._directory, still_known)
        self.damage.change(changed)
        for name, what in list(changed.items())[:_MOST_LINES]:
            self._log.error(
                "STANDBY: %s %s; it is copied again from %s", name, what, self._options.standby_of
            )
        if len(changed) > _MOST_LINES:
            self._log.error("STANDBY: so were %d other files", len(changed) - _MOST_LINES)
        self._copy.copy_again(changed)
        return bool(changed)

    def note_found(self) -> None:
        """Note the damage that was found when the files were read at the start: it is repaired soon."""
        found = self._copy.found_damage
        while found:
            self.damaged(*found.popitem())

    def end_round(self) -> None:
        """Handle that everything that has arrived is written."""
        copy = self._copy
        while copy.replaced:
            name = copy.replaced.pop()
            self.damage.forget(name)
            self._reported.pop(name, None)
        copy.arrival.end_round()
        if copy.arrival.suspects:
            self._wake.set()

    # ---- for the scrub

    @property
    def damaged_bytes(self) -> int:
        return self.damage.damaged_bytes

    @property
    def repaired_bytes(self) -> int:
        return self.damage.repaired_bytes

    def files(self) -> list[str]:
        return self._copy.log_names()

    def file(self, key: str) -> ScrubbedFile | None:
        known = self._copy.log_file(key)
        if known is None or not known.end_offset:
            return None
        return ScrubbedFile(self._directory / key, known.salt, known.end_offset)

    def damaged(self, key: str, ranges: list[Range]) -> None:
        """Count damaged bytes, and have them repaired."""
        if self.damage.note(key, ranges):
            self._reported.pop(key, None)
            self._wake.set()

    def end_pass(self) -> None:
        """Do nothing at the end of a pass."""

    # ---- repairs

    def _mend(self) -> None:
        """Check what has arrived with damage, and repair what is damaged."""
        while True:
            self._wake.wait(_RETRY_S if self.damage.damaged else None)
            self._wake.clear()
            try:
                self._check_suspects()
                for name in list(self.damage.damaged):
                    self._repair(name)
            except Exception as error:  # noqa: BLE001 - after a bug with one file, the next must follow
                self._log.exception("STANDBY: failed to repair the copy - %r", error)

    def _check_suspects(self) -> None:
        """Find the damaged bytes of files that have just arrived: those of the primary are damaged too."""
        suspects = self._copy.arrival.suspects
        while suspects:
            name, _ = suspects.popitem()
            file = self.file(name)
            found = []
            if file is not None:
                with suppress(OSError):
                    found = in_thread(self._threadpool, damage_in, *file[:3])
            if found and self.file(name) is not None:
                self.damage.note(name, found)

    def _repair(self, name: str) -> None:
        """Repair a file, and log the result once."""
        known = self._copy.log_file(name)
        ranges = list(self.damage.damaged.get(name, ()))
        if known is None or not ranges:
            self.damage.forget(name)
            return
        target = RepairedFile(
            self._threadpool, self._directory / name, name, known.salt, may_lack_header=ranges[0][0] == 0
        )
        epochs = self._copy.epochs.get(topic_of(name) or "", ())
        left = ranges
        reason = "the primary has them neither"
        try:
            left = repair_ranges(self._options, self._options.standby_of, epochs, target, ranges)
        except (OSError, NsqdError) as error:
            reason = str(error)
        now = self._copy.log_file(name)
        if now is None or now.salt != known.salt:  # it was replaced in the meantime
            return
        self.damage.repaired(name, ranges, left)
        text = "all are repaired from the primary"
        if left:
            text = f"{count_of(left)} of them are not repaired: {reason}"
        if self._reported.get(name) != text:
            self._reported[name] = text
            self._log.error("STANDBY: %s: %s; %s", name, damage_text(ranges), text)
