"""Limits on what nsqds and clients can register. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from nsqd_py.errors import ClientError

UNLIMITED = 1 << 63


@dataclass(frozen=True, slots=True)
class RegistryLimits:
    """The limits of a registry.

    names          topics and channels
    registrations  pairs of a producer and a topic or channel
    of_producer    registrations of one producer
    """

    names: int = UNLIMITED
    registrations: int = UNLIMITED
    of_producer: int = UNLIMITED


class RegisterFailed(ClientError):
    """A limit does not allow a registration.

    Not fatal: an nsqd that is disconnected would connect again at once and register everything again.
    """

    code = "E_REGISTER_FAILED"
    fatal = False

    def __init__(self, what: str, most: int, flag: str) -> None:
        super().__init__(f"REGISTER failed {what} exceed limit of {most} (--{flag})")


class TooManyNames(RegisterFailed):
    """The limit on topics and channels is reached."""


class RegistryUsage:
    """The numbers of names and registrations, checked against the limits.

    names          number of topics and channels
    registrations  number of pairs of a producer and a name
    unused         names that no producer has, the longest unused first; channels of a topic precede the topic
    """

    __slots__ = ("limits", "names", "registrations", "unused")

    def __init__(self, limits: RegistryLimits) -> None:
        self.limits = limits
        self.names = 0
        self.registrations = 0
        self.unused: OrderedDict[tuple[str, str], None] = OrderedDict()

    def check_names(self, added: int) -> None:
        """Raise TooManyNames if the limit does not allow `added` more topics and channels."""
        if self.names + added > self.limits.names:
            raise TooManyNames("topics and channels", self.limits.names, "max-topics-and-channels")

    def check_registrations(self, added: int, of_producer: int) -> None:
        """Raise RegisterFailed if a producer with `of_producer` registrations cannot have `added` more."""
        limits = self.limits
        if of_producer + added > limits.of_producer:
            raise RegisterFailed("registrations of this nsqd", limits.of_producer, "max-registrations-per-nsqd")
        if self.registrations + added > limits.registrations:
            raise RegisterFailed("registrations", limits.registrations, "max-registrations")

    def make(self, added: int, remove: Callable[[str, str], object]) -> bool:
        """Call `remove` on unused names until `added` names are allowed; return False if too few are unused."""
        while self.names + added > self.limits.names:
            if not self.unused:
                return False
            (topic, channel), _ = self.unused.popitem(last=False)
            remove(topic, channel)
        return True
