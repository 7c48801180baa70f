"""Which nsqds to be connected to: those that were named, and those that the nsqlookupds name. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Schedule:
    """When one nsqlookupd is asked next: at once, then every interval, longer by up to a share (0 to 1) of it.

    So consumers that start together do not ask together for long. `chance` gives a number from 0 to 1.
    """

    __slots__ = ("_chance", "_interval_s", "_jitter", "due_s")

    def __init__(self, now_s: float, interval_s: float, jitter: float, chance: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._jitter = jitter
        self._chance = chance
        self.due_s = now_s

    def asked(self, now_s: float) -> None:
        """It was asked just now; the next time is an interval later."""
        self.due_s = now_s + self._interval_s * (1 + self._jitter * self._chance())

    def hurry(self, now_s: float) -> None:
        """Something changed: ask it again soon, but a lost nsqd a moment does not make a question a moment."""
        self.due_s = min(self.due_s, now_s + min(1.0, self._interval_s))


class Discovery:
    """The nsqds that are wanted. The last answer of each nsqlookupd counts until it gives another.

    So nothing is forgotten for a nsqlookupd that is down, and an unknown topic is an answer without nsqds.
    """

    def __init__(self, direct: Iterable[str] = ()) -> None:
        self._direct = dict.fromkeys(direct)
        self._answers: dict[str, tuple[str, ...]] = {}

    @property
    def wanted(self) -> list[str]:
        """Every address once, those that were named first."""
        found = (address for answer in self._answers.values() for address in answer)
        return list(dict.fromkeys([*self._direct, *found]))

    def is_wanted(self, address: str) -> bool:
        return address in self._direct or any(address in answer for answer in self._answers.values())

    def add(self, address: str) -> None:
        self._direct[address] = None

    def remove(self, address: str) -> None:
        """Do not want it any more; an nsqlookupd that names it again brings it back."""
        self._direct.pop(address, None)
        self._answers = {
            lookupd: tuple(other for other in answer if other != address) for lookupd, answer in self._answers.items()
        }

    def answered(self, lookupd: str, addresses: Iterable[str]) -> None:
        """What an nsqlookupd names now."""
        self._answers[lookupd] = tuple(addresses)

    def keep_lookupds(self, lookupds: Iterable[str]) -> None:
        """Only these are asked from now on: what others have said does not count any more."""
        kept = set(lookupds)
        self._answers = {lookupd: answer for lookupd, answer in self._answers.items() if lookupd in kept}
