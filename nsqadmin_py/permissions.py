"""Blocks of addresses: the proxies that may name the user, and hosts that may see a token."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

UNIX = "unix"


class AddressBlocks:
    """Blocks of addresses in CIDR notation. `unix` stands for every client of a unix socket. False if empty."""

    def __init__(self, blocks: Iterable[str]) -> None:
        """Raises ValueError."""
        named = tuple(blocks)
        self._has_unix = UNIX in named
        self._networks = tuple(ipaddress.ip_network(block, strict=False) for block in named if block != UNIX)

    def __bool__(self) -> bool:
        return self._has_unix or bool(self._networks)

    @property
    def has_all(self) -> bool:
        """True if a block holds all addresses: it limits nothing."""
        return any(not network.prefixlen for network in self._networks)

    def __contains__(self, host: str) -> bool:
        """True if a block holds `host`, an address as a socket gives it; it is empty for a unix socket."""
        if not host:
            return self._has_unix
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return False
        return any(address in network for network in self._networks)


VIEW, PUBLISH, ADMINISTER = "view", "publish", "administer"
# Each permission includes those before it.
_ORDER = (VIEW, PUBLISH, ADMINISTER)
_ALL_TOPICS = "*"
_EVERYBODY = "*"
_GROUP = "group:"
_WORDS = 3
_EXPECTED = "expected PERMISSION TOPICS WHO, such as: view orders.* group:shop"


class Grant(NamedTuple):
    """A permission on all topics that match a pattern, in which `*` stands for any characters and `?` for one."""

    permission: str
    pattern: str


class Rule(NamedTuple):
    """A grant to a user, to a group, or to everybody (`*`)."""

    grant: Grant
    user: str = ""
    group: str = ""

    def is_for(self, user: str, groups: Iterable[str]) -> bool:
        if self.group:
            return self.group in groups
        return self.user in (_EVERYBODY, user)


def read_rule(text: str) -> Rule:
    """Return the rule of one --topic-permission. Raises ValueError."""
    words = text.split(maxsplit=_WORDS - 1)
    if len(words) != _WORDS:
        raise ValueError(_EXPECTED)
    permission, pattern, who = words
    if permission not in _ORDER:
        raise ValueError(f"unknown permission {permission}; {_EXPECTED}")
    grant, who = Grant(permission, pattern), who.strip()
    if not who.startswith(_GROUP):
        return Rule(grant, user=who)
    if not who.removeprefix(_GROUP):
        raise ValueError(f"the group has no name; {_EXPECTED}")
    return Rule(grant, group=who.removeprefix(_GROUP))


@dataclass(frozen=True, slots=True)
class Scope:
    """The permissions of a user. `grants` is None for a user who may view all topics and whom no rule restricts."""

    grants: tuple[Grant, ...] | None = None

    @property
    def has_all(self) -> bool:
        """True if the user may view every topic."""
        return self.grants is None or any(grant.pattern == _ALL_TOPICS for grant in self.grants)

    def sees(self, topic: str) -> bool:
        return self.has_all or self.may(VIEW, topic)

    def may(self, permission: str, topic: str) -> bool:
        """True if a rule grants the permission, or one that includes it."""
        least = _ORDER.index(permission)
        return any(_ORDER.index(grant.permission) >= least and fnmatchcase(topic, grant.pattern) for grant in self.grants or ())


EVERYTHING = Scope()


def scope_of(rules: Sequence[Rule], user: str, groups: Iterable[str]) -> Scope:
    """Return what the rules grant to a user (empty if unknown) who is a member of these groups."""
    members = frozenset(groups)
    return Scope(tuple(sorted({rule.grant for rule in rules if rule.is_for(user, members)})))
