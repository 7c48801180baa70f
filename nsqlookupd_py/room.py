"""Bounds what nsqds and clients can register. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from nsqd_py.errors import ClientError

UNLIMITED = 1 << 63


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """The most topics and channels that are known, that producers register in all, and that one producer registers."""

    names: int = UNLIMITED
    registrations: int = UNLIMITED
    of_producer: int = UNLIMITED


class RegisterFailed(ClientError):
    """There is no room for a registration.

    Not fatal: an nsqd that is disconnected connects again at once and registers everything again.
    """

    code = "E_REGISTER_FAILED"
    fatal = False

    def __init__(self, what: str, most: int, flag: str) -> None:
        super().__init__(f"REGISTER failed {what} exceed limit of {most} (--{flag})")


class TooManyNames(RegisterFailed):
    """The limit of known topics and channels is reached."""


class Room:
    """Counts names and registrations.

    names          topics and channels that are known
    registrations  pairs of a producer and a name
    unused         names that no producer has, the longest unused first, and the channels of a topic before the topic
    """

    __slots__ = ("limits", "names", "registrations", "unused")

    def __init__(self, limits: RegistryLimits) -> None:
        self.limits = limits
        self.names = 0
        self.registrations = 0
        self.unused: OrderedDict[tuple[str, str], None] = OrderedDict()

    def check_names(self, added: int) -> None:
        """Raise TooManyNames if there is no room for more topics and channels."""
        if self.names + added > self.limits.names:
            raise TooManyNames("topics and channels", self.limits.names, "max-topics-and-channels")

    def check_registrations(self, added: int, of_producer: int) -> None:
        """Raise RegisterFailed if a producer that has `of_producer` registrations cannot have more."""
        limits = self.limits
        if of_producer + added > limits.of_producer:
            raise RegisterFailed("registrations of this nsqd", limits.of_producer, "max-registrations-per-nsqd")
        if self.registrations + added > limits.registrations:
            raise RegisterFailed("registrations", limits.registrations, "max-registrations")

    def make(self, added: int, remove: Callable[[str, str], object]) -> bool:
        """Call `remove` on unused names until there is room for `added` names; False if too few are unused."""
        while self.names + added > self.limits.names:
            if not self.unused:
                return False
            (topic, channel), _ = self.unused.popitem(last=False)
            remove(topic, channel)
        return True
