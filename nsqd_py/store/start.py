"""The start of an nsqd with a store: it claims the store, and gets from it what is missing in the data path.

nsqd starts only when the store has answered: after a power cut the store may have what the disk has lost, and another nsqd
may have taken over.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import NamedTuple

from nsqd_py.broker.clock_file import read_clock_file, read_clocks
from nsqd_py.broker.state_files import BACKUP_FILE
from nsqd_py.errors import StartError
from nsqd_py.objects.calls import Missing, StoreError, StoreRefused
from nsqd_py.server.docking import Host
from nsqd_py.standby.copies.data_path import own_member
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.history import StoreHistory
from nsqd_py.store.image import StoreImage
from nsqd_py.store.layout import FILES, BadObject, Head
from nsqd_py.store.nesting import check_nesting
from nsqd_py.store.ownership import Claims, Owner, Superseded, claim
from nsqd_py.store.permission import Permission
from nsqd_py.store.reading import not_complete_text, read_state
from nsqd_py.store.requests import CountedObjects
from nsqd_py.store.restoring.catching_up import catch_up
from nsqd_py.store.restoring.restoration import Incomplete, Restoration

_PATIENCE_S = 60.0  # how long a start waits for the store
_PAUSE_S = 1.0


class Started(NamedTuple):
    """A store that a start has claimed.

    files          the log files that are in it
    history        with which nsqd's logs go on in it
    restoration    ends when the data path is loaded
    damage         what was said of each object that is damaged, foreign or missing
    is_other_node  the state was another node's
    """

    objects: CountedObjects
    owner: Owner
    files: StoredFiles
    history: StoreHistory
    restoration: Restoration
    damage: list[str]
    is_other_node: bool


class StoreStart:
    """Claims a store, and restores or catches up from it. Methods raise StartError and OSError.

    It runs in a thread, so that a lease is renewed in the meantime. Nothing else uses the data path.

    is_copy  the data path is the copy of another nsqd, which is promoted at this start
    """

    def __init__(
        self, host: Host, objects: CountedObjects, on_progress: Callable[[], None], *, is_copy: bool
    ) -> None:
        broker = host.broker
        self._host = host
        self._options = broker.options
        self._log = broker.log
        self._directory = broker.services.directory
        self._objects = objects
        self._on_progress = on_progress
        self._is_copy = is_copy
        self._claims = Claims(self._directory, self._options.store)
        self._restoration = Restoration(self._directory, objects, on_progress, self._log)
        may_be_copy = is_copy or bool(self._options.lease)
        was_restored = (self._directory / BACKUP_FILE).exists()  # although not completely
        self._is_restored = self._restoration.is_due(self._options.restore_from, is_copy=may_be_copy)
        self._is_other_node = was_restored or self._is_restored
        self._permission = Permission(
            objects,
            self._claims,
            self._options.store,
            self._is_restored,
            may_be_copy,
            self._log,
            node=own_member(self._directory, self._options).address,
        )
        self._former_node = ""  # who had the store that is restored
        self._damage: list[str] = []

    def run(self) -> Started:
        """Claim the store, and get from it what is missing here."""
        owner = self._claim()
        image = owner.image
        assert image is not None
        self._log.info("STORE: %r is this nsqd's, in the epoch %d", self._objects, owner.epoch)
        self._write_state(image)
        self._damage += self._restoration.failed.values()
        gone = self._restoration.gone
        files = StoredFiles(file for file in image.all_files() if file.name not in gone)
        history = StoreHistory(self._objects, files, self._options)
        return Started(
            self._objects, owner, files, history, self._restoration, self._damage, self._is_other_node
        )

    # ---- the claim

    def _claim(self) -> Owner:
        """Claim the store; wait for it for a minute."""
        ends_s = monotonic() + _PATIENCE_S
        node = own_member(self._directory, self._options).address
        reported = ""
        self._host.notifier.status(f"claiming the store {self._objects!r}")
        while True:
            try:
                return claim(
                    self._objects,
                    node,
                    self._claims,
                    self._check,
                    self._note_damage,
                    is_restoring=self._is_restored,
                )
            except StoreError as error:
                if monotonic() >= ends_s:
                    raise StartError(f"the store {self._objects!r} does not answer: {error}") from error
                if str(error) != reported:
                    self._log.warning("STORE: %r does not answer - %s; trying again", self._objects, error)
                    reported = str(error)
            except (StoreRefused, Superseded, BadObject) as error:
                raise StartError(f"the store {self._objects!r} cannot be claimed: {error}") from error
            self._on_progress()
            sleep(_PAUSE_S)

    def _note_damage(self, error: BadObject) -> None:
        self._damage.append(str(error))
        self._log.error("STORE: %s", error)

    def _check(self, head: Head | None) -> StoreImage | None:
        """Raise StartError if this nsqd must not claim the store; return its state if that was read, and nothing is damaged."""
        self._on_progress()  # a request may have taken so long that the lease is another nsqd's, and this head too
        self._permission.check(head)
        self._is_other_node |= self._permission.is_other  # a claim that is repeated finds its own head
        if head is None:
            check_nesting(self._options.store, self._options.store_endpoint)
        if not self._is_restored or head is None:
            return None
        self._former_node = self._former_node or head.node
        return self._read_whole(head)

    def _read_whole(self, head: Head) -> StoreImage | None:
        """Read the state that will be restored; return it if nothing is damaged.

        Raise StartError if the store was never complete, or has lost messages: it is not claimed then, so that who has them may
        go on. What is left is written into the data path, which may claim the store when the operator decides so, if it is still
        that of the same process. Damage of a log file is found later.
        """
        damage: list[BadObject] = []
        image = read_state(self._objects, damage.append, self._directory).image
        sizes = {listed.name: listed.size_bytes for listed in self._objects.list(FILES)}
        has_all = all(sizes.get(file.name) == file.size_bytes for file in image.all_files())
        if has_all and not image.is_broken:
            # An nsqd that was killed between its first claim and its first base goes on by itself.
            if not (image.base or self._claims.is_mine(head)):
                raise StartError(
                    f"the store {self._objects!r} {not_complete_text(head)}. It was not claimed: start nsqd on the data path "
                    f"of {head.node}; if that is lost, choose another --store, without --restore-from"
                )
            return None if damage else image
        try:
            self._restoration.run(image)
        except Incomplete as error:
            self._claims.add(head.store, head.writer)
            for each in damage:
                self._note_damage(each)
            raise self._damaged(
                error,
                f"The store was not claimed: if the data path of {head.node} is left, start nsqd there instead",
            ) from error
        return None

    def _damaged(self, error: Incomplete, advice: str) -> StartError:
        """Return the error for a restoration that lacks messages."""
        damage = next(iter([*self._damage, *self._restoration.failed.values()]))
        return StartError(
            f"the store {self._objects!r} is damaged ({damage}), and {error}. {advice}. What is left is in "
            f"{self._directory.absolute()}: start nsqd without --restore-from to serve that; until then, nothing in the store is "
            "replaced"
        )

    # ---- what is missing here

    def _write_state(self, image: StoreImage) -> None:
        is_copy = self._is_copy or self._permission.is_other
        is_last = not is_copy and self._is_same_boot()
        try:
            if self._is_restored:
                self._restoration.run(image)
            else:
                catch_up(self._restoration, image, is_last=is_last, is_copy=is_copy)
        except Incomplete as error:
            raise self._damaged(
                error,
                f"The store was claimed. If the data path of {self._former_node} is left, start nsqd there with another "
                "--store: it has its messages",
            ) from error
        except (BadObject, Missing, StoreError, StoreRefused) as error:
            raise StartError(
                f"cannot get from the store {self._objects!r} what is missing here: {error}"
            ) from error

    def _is_same_boot(self) -> bool:
        """True if the machine was not rebooted since: then nsqd.dat is what the last nsqd on this data path has written last.

        Other files may be damaged or missing nevertheless.
        """
        before = read_clock_file(self._directory)
        return before is not None and before.is_same_boot(read_clocks(0))
