"""The nsqds to connect to: those that were named, and those that the nsqlookupds name. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Schedule:
    """When to ask one nsqlookupd: at once, then at each interval plus a random part, up to `jitter`, of it.

    So consumers that start together soon ask at different times. `chance` returns a number from 0 to 1.
    """

    __slots__ = ("_chance", "_interval_s", "_jitter", "due_s")

    def __init__(self, now_s: float, interval_s: float, jitter: float, chance: Callable[[], float]) -> None:
        self._interval_s = interval_s
        self._jitter = jitter
        self._chance = chance
        self.due_s = now_s

    def asked(self, now_s: float) -> None:
        """Note that it was asked now."""
        self.due_s = now_s + self._interval_s * (1 + self._jitter * self._chance())

    def hurry(self, now_s: float) -> None:
        """Ask again soon. The interval, or 1 s, still limits the rate, even if nsqds are lost again and again."""
        self.due_s = min(self.due_s, now_s + min(1.0, self._interval_s))


class Discovery:
    """The nsqds in use. The last answer of each nsqlookupd counts until it gives another.

    So an nsqlookupd that is down removes no nsqd. An unknown topic is an answer without nsqds.
    """

    def __init__(self, direct: Iterable[str] = ()) -> None:
        self._direct = dict.fromkeys(direct)
        self._answers: dict[str, tuple[str, ...]] = {}

    @property
    def wanted(self) -> list[str]:
        """Return every address once, beginning with those that were named."""
        found = (address for answer in self._answers.values() for address in answer)
        return list(dict.fromkeys([*self._direct, *found]))

    def is_wanted(self, address: str) -> bool:
        return address in self._direct or any(address in answer for answer in self._answers.values())

    def add(self, address: str) -> None:
        self._direct[address] = None

    def remove(self, address: str) -> None:
        """Remove an nsqd. If an nsqlookupd names it again, it is added again."""
        self._direct.pop(address, None)
        self._answers = {
            lookupd: tuple(other for other in answer if other != address) for lookupd, answer in self._answers.items()
        }

    def answered(self, lookupd: str, addresses: Iterable[str]) -> None:
        """Replace the answer of an nsqlookupd."""
        self._answers[lookupd] = tuple(addresses)

    def is_empty(self, lookupds: Iterable[str]) -> bool:
        """True if there is no nsqd, according to all of these nsqlookupds."""
        return not self._direct and all(self._answers.get(lookupd) == () for lookupd in lookupds)

    def keep_lookupds(self, lookupds: Iterable[str]) -> None:
        """Forget the answers of all other nsqlookupds."""
        kept = set(lookupds)
        self._answers = {lookupd: answer for lookupd, answer in self._answers.items() if lookupd in kept}
