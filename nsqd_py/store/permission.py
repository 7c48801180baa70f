"""Decides whether an nsqd may claim a store: its own, one that it restores, or one whose messages it has a copy of."""

from __future__ import annotations

from dataclasses import dataclass

from nsqd_py.errors import StartError
from nsqd_py.objects.calls import Objects
from nsqd_py.runtime.logs.daemon_log import Log
from nsqd_py.store.layout import BadObject, Head
from nsqd_py.store.leaving import check_needs_nothing, name_of
from nsqd_py.store.logs_here import LogsHere
from nsqd_py.store.ownership import CLAIMS_FILE, Claims
from nsqd_py.store.reading import read_state


@dataclass(eq=False, repr=False)
class Permission:
    """Checks the heads that a claim finds.

    _url             of the store
    _is_restored     the data path gets everything from the store
    _may_take_over   a lease or an operator has decided that this nsqd, which is a copy of another one, is the next primary
    is_other         True after a check of a head of another nsqd's
    node             address of this nsqd
    """

    _objects: Objects
    _claims: Claims
    _url: str
    _is_restored: bool
    _may_take_over: bool
    _log: Log
    is_other: bool = False
    node: str = ""
    _has_warned: bool = False

    def check(self, head: Head | None) -> None:
        """Raise StartError if this nsqd must not claim the store; also BadObject and the errors of `Objects`."""
        if head is None:
            if self._is_restored:
                raise StartError(f"there is nothing to restore in the store {self._objects!r}")
            self._leave_former()
            return
        if head.is_backup:
            raise StartError(
                f"the store {self._objects!r} is a backup of {head.node}, which stays as it is: restore it into an empty "
                f"--data-path with --restore-from={self._url}, without --store; then start nsqd there with another --store"
            )
        if self._claims.is_mine(head):
            if self._claims.store != head.store:
                self._leave_former()
            return
        if not (self._is_restored or self._may_take_over):
            self._check_needs_nothing()
        self.is_other = True
        if not (self._is_restored or self._continues(head)):
            raise StartError(self._refusal(head))

    def _leave_former(self) -> None:
        """Warn that the data path leaves the store in which it was. Raises StartError if it has messages only there."""
        if not self._claims.store:
            return
        self._check_needs_nothing()
        if not self._has_warned:
            self._has_warned = True
            self._log.warning(
                "STORE: %s was in %s until now; nsqd goes on in %r, and reads no history of the former store",
                self._claims.directory.absolute(),
                name_of(self._claims),
                self._objects,
            )

    def _check_needs_nothing(self) -> None:
        check_needs_nothing(self._claims, f"and at --store={self._url} is another one, or nothing")

    def _continues(self, head: Head) -> bool:
        """True if this data path has a copy of the store's messages, and may go on with them."""
        claims = self._claims
        if self._may_take_over and claims.store == head.store:
            return True
        if not (self._may_take_over or self._has_forgotten()):
            return False
        image = read_state(self._objects, self._ignore, claims.directory).image
        logs = LogsHere(claims.directory, image)
        if self._may_take_over:
            return logs.is_related()
        if not logs.is_latest():
            return False
        self._log.warning(
            "STORE: %s is %s in %s; the epochs of the logs show that %r has their messages: nsqd goes on with it",
            CLAIMS_FILE,
            self._found(),
            claims.directory,
            self._objects,
        )
        return True

    @staticmethod
    def _ignore(_error: BadObject) -> None:
        """The claim reports damage."""

    def _has_forgotten(self) -> bool:
        """True if this data path has messages, and no valid note of its store."""
        if self._claims.store:
            return False
        return any(self._claims.directory.glob("*.log"))

    def _found(self) -> str:
        if (self._claims.directory / CLAIMS_FILE).exists():
            return "damaged"
        return "missing"

    def _refusal(self, head: Head) -> str:
        directory = self._claims.directory.absolute()
        if self._has_forgotten() and not self._may_take_over:
            return (
                f"{CLAIMS_FILE} is {self._found()} in {directory}, and another nsqd, {head.node} (epoch {head.epoch}), has "
                f"begun an epoch in the store {self._objects!r} which this data path does not have: move the data path "
                f"aside, and restore into an empty one with --restore-from={self._url}; nothing was changed. docs/store.md "
                "says how to look for messages that only the old one has"
            )
        owner = head.node
        if owner == self.node and self._claims.store:
            owner = f"this nsqd itself, {owner}, at an earlier time"
        return (
            f"the store {self._objects!r} has the messages of {owner} (epoch {head.epoch}), not those of "
            f"{directory}: choose another --store, or restore them into an empty --data-path with "
            f"--restore-from={self._url}"
        )
