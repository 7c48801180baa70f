"""What clients know of the nsqds that served them: each OK and each delivery, with the nsqd and the epoch it served in.

A client reads the epoch from `/stats` of the nsqd after it has connected, and before its first request. If the
connection is answered after that, the nsqd is still the same primary. All times are those of the steady clock of one
machine, at the client.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

OK, DELIVERY = "OK", "delivery"


class Source(NamedTuple):
    """A primary: an nsqd by its address, and the epoch in which it serves."""

    nsqd: str
    epoch: int


class Late(NamedTuple):
    """Something that a client got from a primary after a newer one had begun to serve, by `behind_s`."""

    what: str
    source: Source
    at_s: float
    behind_s: float

    def __str__(self) -> str:
        return f"{self.what} of {self.source.nsqd} in epoch {self.source.epoch}, {self.behind_s:.3f} s late"


@dataclass
class EpochLedger:
    """Written by all clients of a run.

    acknowledged  when each message was acknowledged, by its body
    received      how often each message was delivered, by channel and body
    """

    acknowledged: dict[bytes, float] = field(default_factory=dict)
    received: dict[str, Counter[bytes]] = field(default_factory=dict)
    late: list[Late] = field(default_factory=list)
    refused: int = 0
    last_error: str = ""
    _first_s: dict[tuple[Source, str], float] = field(default_factory=dict)  # of each kind of service
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ---- what clients see

    def ok(self, bodies: Iterable[bytes], source: Source | None, at_s: float) -> None:
        with self._lock:
            for body in bodies:
                self.acknowledged[body] = at_s
            self._served(OK, source, at_s)

    def delivered(self, channel: str, body: bytes, source: Source | None, at_s: float) -> None:
        with self._lock:
            self.received.setdefault(channel, Counter())[body] += 1
            self._served(DELIVERY, source, at_s)

    def failed(self, error: object) -> None:
        """A publish was refused, or its answer did not come."""
        with self._lock:
            self.refused += 1
            self.last_error = str(error)

    def _served(self, what: str, source: Source | None, at_s: float) -> None:
        if source is None:
            return
        self._first_s.setdefault((source, what), at_s)
        newer_s = [first_s for (other, _), first_s in self._first_s.items() if other.epoch > source.epoch]
        if newer_s and min(newer_s) < at_s:
            self.late.append(Late(what, source, at_s, at_s - min(newer_s)))

    # ---- what follows

    @property
    def newest_epoch(self) -> int:
        """The highest epoch in which somebody was served; 0 if nobody was."""
        with self._lock:
            return max((source.epoch for source, _ in self._first_s), default=0)

    def first_s(self, what: str, after_epoch: int) -> float:
        """Return when a primary of a higher epoch first did this; 0.0 if none has."""
        with self._lock:
            firsts = list(self._first_s.items())
        return min((at_s for (source, did), at_s in firsts if did == what and source.epoch > after_epoch), default=0.0)

    def serves_now(self, nsqd: str) -> bool:
        """True if the newest primary is this nsqd, and it has answered and delivered."""
        newest = self.newest_epoch
        with self._lock:
            did = {what for source, what in self._first_s if source.epoch == newest and source.nsqd == nsqd}
        return did == {OK, DELIVERY}

    def shared_epochs(self) -> dict[int, set[str]]:
        """Return the epochs in which more than one nsqd served, and these nsqds."""
        servers: dict[int, set[str]] = {}
        for nsqd, epoch in {source for source, _ in self._first_s}:
            servers.setdefault(epoch, set()).add(nsqd)
        return {epoch: nsqds for epoch, nsqds in servers.items() if len(nsqds) > 1}

    def lost(self) -> set[bytes]:
        """Return what was acknowledged, and never delivered in some channel."""
        with self._lock:
            return {body for body in self.acknowledged for received in self.received.values() if body not in received}

    @property
    def doubled(self) -> int:
        """The number of deliveries beyond the first, over all channels."""
        return sum(received.total() - len(received) for received in self.received.values())
