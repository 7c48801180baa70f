"""What a standby is to its clients and operators: it refuses everything but figures and its promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nsqd_py.broker.replication import NoReplication
from nsqd_py.errors import HttpError, Invalid, IsStandby
from nsqd_py.protocol.frames import OK
from nsqd_py.standby.door import Door
from nsqd_py.standby.follower import Follower


class StandbyRole(NoReplication):
    """The `Replication` of a standby. `on_promotion` is called once, when it shall become a primary; None if a lease
    decides about that.
    """

    def __init__(
        self, follower: Follower, primary: str, door: Door, on_promotion: Callable[[], None] | None
    ) -> None:
        self._follower = follower
        self._primary = primary
        self._door = door
        self._on_promotion = on_promotion

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
        return self._follower.figures()

    def lags(self) -> list[tuple[str, dict[str, int]]]:
        return [(self._primary, self._follower.lag.figures())]

    def promote(self) -> None:
        if self._on_promotion is None:
            raise HttpError(409, "LEASE_DECIDES")
        if not self._follower.is_complete:
            raise HttpError(409, "STANDBY_INCOMPLETE")
        self._on_promotion()
