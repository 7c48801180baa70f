"""The permissions of users and groups on topics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

VIEW = "view"
PUBLISH = "publish"
ADMINISTER = "administer"
# Each permission includes those before it.
_ORDER = (VIEW, PUBLISH, ADMINISTER)
_ALL_TOPICS = "*"
_EVERYBODY = "*"
_GROUP = "group:"
_WORDS = 3
_EXPECTED = "expected PERMISSION TOPICS WHO, such as: view orders.* group:shop"


class Grant(NamedTuple):
    """A permission on all topics that match a pattern: `*` stands for any characters, `?` for one and `[ab]` for one of these."""

    permission: str
    pattern: str


class Rule(NamedTuple):
    """A grant to a user, to a group (`group:NAME`), or to everybody (`*`)."""

    grant: Grant
    who: str

    def is_for(self, user: str, groups: Iterable[str]) -> bool:
        if self.who.startswith(_GROUP):
            return self.who.removeprefix(_GROUP) in groups
        return self.who in (_EVERYBODY, user)


def read_rule(text: str) -> Rule:
    """Return the rule of one --topic-permission. Raises ValueError."""
    words = text.split(maxsplit=_WORDS - 1)
    if len(words) != _WORDS:
        raise ValueError(_EXPECTED)
    permission, pattern, who = map(str.strip, words)
    if permission not in _ORDER:
        raise ValueError(f"unknown permission {permission}; {_EXPECTED}")
    if who == _GROUP:
        raise ValueError(f"the group has no name; {_EXPECTED}")
    return Rule(Grant(permission, pattern), who)


@dataclass(frozen=True, slots=True)
class Scope:
    """The permissions of a user on topics.

    `grants` is None, as in `Scope()`, for an administrator, and for everybody where there are no rules.
    """

    grants: tuple[Grant, ...] | None = None

    @property
    def has_all(self) -> bool:
        """True if the user may view every topic."""
        if self.grants is None:
            return True
        return any(grant.pattern == _ALL_TOPICS for grant in self.grants)

    def sees(self, topic: str) -> bool:
        """True if the user may view the topic. An empty name stands for all topics."""
        if self.has_all:
            return True
        return topic != "" and self.may(VIEW, topic)

    def may(self, permission: str, topic: str) -> bool:
        """True if a rule grants the permission, or one that includes it. False in `Scope()`, which has no rules."""
        enough = _ORDER[_ORDER.index(permission) :]
        return any(
            grant.permission in enough and fnmatchcase(topic, grant.pattern) for grant in self.grants or ()
        )


def scope_of(rules: Sequence[Rule], user: str, groups: Iterable[str]) -> Scope:
    """Return what the rules grant to a user (empty if unknown) who is a member of these groups."""
    members = frozenset(groups)
    grants = {rule.grant for rule in rules if rule.is_for(user, members)}
    return Scope(tuple(sorted(grants)))
