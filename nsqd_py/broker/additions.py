"""What parts of nsqd add to its broker: the role in a group, notices, statistics, and other copies of the logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from nsqd_py.errors import HttpError, Invalid, Refusal
from nsqd_py.net.transport import Stream
from nsqd_py.protocol.commands import NO_MEMBERS


class Addition:
    """What a part adds to the broker: notices, statistics, and other copies of the logs. No method blocks."""

    def notice(self) -> str | None:
        """Return what an operator should know of the part, for /ping; None if all is well."""
        return None

    def statistics(self) -> dict[str, Any]:
        """Return what /stats shows in addition to topics."""
        return {}

    def other_copies(self) -> Iterable[Any]:
        """Return the copies of the logs that there are now, each a `Copy` of `broker.mending`."""
        return ()

    def close(self) -> None:
        """End, before the topics are closed."""


class Replication(Addition):
    """The role of an nsqd in its group. No method blocks. This is that of an nsqd without a group; parts have others.

    takes_members  True if other nsqds of the group may connect
    """

    takes_members = False

    def member(self, client: Stream, body: bytes) -> None:
        """Answer this connection's MEMBER, a step of the proof that it belongs to the group. Raises ClientError."""
        raise Invalid(NO_MEMBERS)

    def attach(self, client: Stream, body: bytes) -> None:
        """Let this connection follow; `body` is the document of STANDBY. Raises ClientError."""
        raise Invalid(NO_MEMBERS)

    def acknowledge(self, client: Stream, number: int) -> None:
        """Handle that the standby behind this connection has written a round. Nothing to do if none follows."""

    def detach(self, client: Stream) -> None:
        """Handle the end of a connection."""

    def refusal(self) -> Refusal | None:
        """Return why this nsqd creates and uses no topic; None if it serves."""
        return None

    def promote(self) -> None:
        """Begin to make a primary of a standby.

        Raises HttpError if this nsqd is no standby, if a lease decides its role, or if its copy is not complete.
        """
        raise HttpError(409, "NOT_A_STANDBY")

    def lags(self) -> list[tuple[str, dict[str, int]]]:
        """Return (address, statistics of its `Lag`) of each standby, or of the primary."""
        return []

    def scrub_source(self) -> Any:
        """Return the files that nsqd checks again and again, as a `ScrubSource` of `broker.scrub`; None for its topics' logs."""
        return None


class Additions:
    """The role of one nsqd, and what its other parts add. Both are set before nsqd serves.

    role  that of an nsqd without a group, until a part has another one
    """

    def __init__(self) -> None:
        self.role = Replication()
        self._others: list[Addition] = []

    def take_role(self, role: Replication) -> None:
        """Be a standby or a primary from now on."""
        self.role = role

    def add(self, addition: Addition) -> None:
        """Show what a part adds, and use its copies of the logs."""
        self._others.append(addition)

    def __iter__(self) -> Iterator[Addition]:
        """Yield the role, and what parts add to it."""
        return iter([self.role, *self._others])

    def notice(self) -> str | None:
        """Return what an operator should know of the parts, for /ping; None if all is well."""
        notices = [addition.notice() for addition in self]
        return "; ".join(filter(None, notices)) or None

    def statistics(self) -> dict[str, Any]:
        """Return what /stats shows in addition to topics."""
        statistics: dict[str, Any] = {}
        for addition in self:
            statistics |= addition.statistics()
        return statistics

    def other_copies(self) -> Iterator[Any]:
        """Yield the copies of the logs that there are now, see `Addition.other_copies`."""
        return chain.from_iterable(addition.other_copies() for addition in self)
