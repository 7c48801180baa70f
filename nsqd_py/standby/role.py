"""The roles of an nsqd that does not serve: they refuse all requests except statistics and promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nsqd_py.broker.replication import NoReplication
from nsqd_py.errors import HttpError, Invalid, IsStandby
from nsqd_py.protocol.frames import OK
from nsqd_py.standby.door import Door
from nsqd_py.standby.follower import Follower, standby_figures
from nsqd_py.standby.messages import Lag

if TYPE_CHECKING:
    from nsqd_py.standby.election import Election


class StandbyRole(NoReplication):
    """The `Replication` of a standby. `on_promotion` is called once, when it shall become a primary, unless a lease
    decides about that.
    """

    def __init__(
        self, follower: Follower, primary: str, door: Door, on_promotion: Callable[[], None], election: Election | None
    ) -> None:
        self._follower = follower
        self._primary = primary
        self._door = door
        self._on_promotion = on_promotion
        self._election = election

    def refusal(self) -> IsStandby:
        """Return the error of whoever wants to publish, subscribe or create something."""
        return IsStandby(self._primary)

    def member(self, client: Any, body: bytes) -> None:
        self._door.member(client, body)

    def attach(self, client: Any, body: bytes) -> None:
        offer = self._door.admit(client, body)
        if offer is None:
            return
        if not offer.fenced_by:
            raise Invalid(f"cannot STANDBY: this nsqd is a standby of {self._primary} itself")
        client.send(OK)  # it does not serve

    def detach(self, client: Any) -> None:
        self._door.forget(client)

    def notice(self) -> str | None:
        fenced = f"fenced: {self._primary} was promoted" if self._follower.is_fenced else None
        return self._follower.notice() or fenced

    def figures(self) -> dict[str, Any]:
        return self._follower.figures() | (self._election.figures() if self._election is not None else {})

    def lags(self) -> list[tuple[str, dict[str, int]]]:
        return [(self._primary, self._follower.lag.figures())]

    def promote(self) -> None:
        if self._election is not None:
            raise HttpError(409, "LEASE_DECIDES")
        if not self._follower.is_complete:
            raise HttpError(409, "STANDBY_INCOMPLETE")
        self._on_promotion()


class WaitingRole(NoReplication):
    """The `Replication` of an nsqd that waits: no nsqd has the lease, as far as this one knows."""

    def __init__(self, election: Election, epoch: int, *, is_complete: bool) -> None:
        """`epoch` and `is_complete` are those of its data path."""
        self._election = election
        self._epoch = epoch
        self._is_complete = is_complete

    def refusal(self) -> IsStandby:
        return IsStandby("none: no nsqd has the lease")

    def member(self, client: Any, body: bytes) -> None:
        raise Invalid("cannot STANDBY: this nsqd waits for its lease")

    attach = member

    def notice(self) -> str | None:
        return f"waiting for the lease {self._election.figures()['lease']['name']}"

    def figures(self) -> dict[str, Any]:
        about = standby_figures("", self._epoch, "waiting", Lag(0, 0, 0), is_complete=self._is_complete, lease_decides=True)
        return about | self._election.figures()

    def promote(self) -> None:
        raise HttpError(409, "LEASE_DECIDES")
