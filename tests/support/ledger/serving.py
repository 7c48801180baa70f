"""Who serves where a standby takes over: the primaries, by the epochs in which they answer and deliver.

A client reads the epoch from `/stats` of the nsqd after it has connected, and before its first request. If the
connection is answered after that, the nsqd is still the same primary.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.ledger.history import Kind, Operation


class Late(NamedTuple):
    """Something that a client got from a primary, `behind_ns` after a primary of a later epoch had begun to serve."""

    operation: Operation
    first: Operation
    behind_ns: int

    def __str__(self) -> str:
        operation = self.operation
        what = f"{operation.kind} of {operation.nsqd} in epoch {operation.epoch}"
        return f"{what}, {self.behind_ns / 1e9:.3f} s after epoch {self.first.epoch} had begun [operation {operation.number}]"


class Serving:
    """Who serves. It sees the operations of a history one after the other, also while it is written (`History.watch`).

    late        what came from a primary after a newer one had begun
    last_error  of the newest publish that was refused or not answered
    """

    def __init__(self) -> None:
        self.late: list[Late] = []
        self.last_error = ""
        self._firsts: dict[tuple[str, int, str], Operation] = {}  # by nsqd, epoch and kind of operation
        self._begun: dict[int, Operation] = {}  # the first one of each epoch
        self.newest_epoch = 0

    def see(self, operation: Operation) -> None:
        if operation.kind in (Kind.REFUSED, Kind.UNKNOWN):
            self.last_error = operation.text
        if not operation.epoch:
            return
        self._firsts.setdefault((operation.nsqd, operation.epoch, operation.kind), operation)
        self._begun.setdefault(operation.epoch, operation)
        if operation.epoch < self.newest_epoch:
            newer = min(
                (first for epoch, first in self._begun.items() if epoch > operation.epoch),
                key=lambda one: one.number,
            )
            self.late.append(Late(operation, newer, operation.at_ns - newer.at_ns))
        self.newest_epoch = max(self.newest_epoch, operation.epoch)

    def first_ns(self, kind: Kind, after_epoch: int) -> int:
        """Return when a primary of a higher epoch first did this; 0 if none has."""
        firsts = [
            one.at_ns
            for (_, epoch, did), one in list(self._firsts.items())
            if did == kind and epoch > after_epoch
        ]
        return min(firsts, default=0)

    def serves_now(self, nsqd: str) -> bool:
        """True if the newest primary is this nsqd, and it has answered and delivered."""
        newest = self.newest_epoch
        return all((nsqd, newest, kind) in self._firsts for kind in (Kind.OK, Kind.DELIVERED))

    def shared(self) -> dict[int, list[Operation]]:
        """Return the epochs in which more than one nsqd served, each with the first operation of each nsqd."""
        servers: dict[int, dict[str, Operation]] = {}
        for (nsqd, epoch, _), first in list(self._firsts.items()):
            known = servers.setdefault(epoch, {}).setdefault(nsqd, first)
            servers[epoch][nsqd] = min(known, first, key=lambda one: one.number)
        return {epoch: list(firsts.values()) for epoch, firsts in servers.items() if len(firsts) > 1}
