"""The answer of an auth server, and what it permits.

    {"ttl": 3600, "identity": "...", "identity_url": "...",
     "authorizations": [{"topic": "...", "channels": ["..."], "permissions": ["publish", "subscribe"]}]}

Topic and channels are regular expressions that match anywhere in a name. They are run by RE2, in time linear in
the length of the name: another engine could be made to hang by what an auth server answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from nsqd_py.settings.regex import BadExpression, compiled

PUBLISH = "publish"
SUBSCRIBE = "subscribe"

_PERMISSIONS = frozenset((PUBLISH, SUBSCRIBE))
_MAX_INT = (1 << 63) - 1

# Bounds of what one answer may cost: bytes of one compiled expression, and instructions of all together.
# 250 k instructions hold some ten thousand names; to try all on one name then takes up to 50 ms.
MAX_EXPRESSION_BYTES = 1024 * 1024
MAX_INSTRUCTIONS = 250_000
_SHARED_EXPRESSIONS = 1024


class BadAnswer(Exception):
    """Not what an auth server answers; the text says why."""


class Grant(NamedTuple):
    """One of the authorizations, as it came."""

    topic: str
    channels: list[str]
    permissions: list[str]


class Answer(NamedTuple):
    """The whole answer, checked but for its regular expressions."""

    ttl_s: int
    identity: str
    identity_url: str
    grants: list[Grant]


class Rule(NamedTuple):
    """A grant that can be asked."""

    topic: Any
    channels: list[Any]
    permissions: frozenset[str]

    def permits(self, topic_name: bytes, channel_name: bytes) -> bool:
        """Publishing is asked for with an empty channel name, which an expression for channels has to match too."""
        if (SUBSCRIBE if channel_name else PUBLISH) not in self.permissions:
            return False
        return _matches(self.topic, topic_name) and any(_matches(channel, channel_name) for channel in self.channels)


@dataclass(frozen=True, slots=True)
class Authorization:
    """What the holder of a secret may do, for `ttl_s` seconds."""

    ttl_s: int
    identity: str
    identity_url: str
    rules: Sequence[Rule]

    def permits(self, topic_name: bytes, channel_name: bytes) -> bool:
        """Whether one of its rules lets a client subscribe to the channel; without a channel, publish to the topic."""
        return any(rule.permits(topic_name, channel_name) for rule in self.rules)


# ---- from the answer


def read_answer(document: Any) -> Answer:
    """Raises BadAnswer. Keys are taken in upper and lower case, null is as nothing, as Go's JSON decoder has it."""
    fields = _object(document, "the answer")
    ttl_s = fields.get("ttl", 0)
    if type(ttl_s) is not int or ttl_s > _MAX_INT:
        raise BadAnswer("ttl is no whole number")
    grants = [_read_grant(entry) for entry in _list(fields, "authorizations")]
    if ttl_s <= 0:
        raise BadAnswer(f"invalid TTL {ttl_s} (must be >0)")
    return Answer(ttl_s, _text(fields, "identity"), _text(fields, "identity_url"), grants)


def _read_grant(entry: Any) -> Grant:
    fields = _object(entry, "an authorization")
    grant = Grant(_text(fields, "topic"), _texts(fields, "channels"), _texts(fields, "permissions"))
    for permission in grant.permissions:
        if permission not in _PERMISSIONS:
            raise BadAnswer(f"unknown permission {permission}")
    return grant


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadAnswer(f"{what} is no object")
    return {key.lower(): item for key, item in value.items() if item is not None}


def _list(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise BadAnswer(f"{name} is no list")
    return value


def _texts(fields: dict[str, Any], name: str) -> list[str]:
    return [_checked_text("" if item is None else item, name) for item in _list(fields, name)]


def _text(fields: dict[str, Any], name: str) -> str:
    return _checked_text(fields.get(name, ""), name)


def _checked_text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise BadAnswer(f"{name} is no text")
    return value


# ---- regular expressions


def compile_rules(grants: Sequence[Grant]) -> Iterator[Rule]:
    """The rules one after the other, so that others get their turn meanwhile. Raises BadAnswer."""
    instructions = 0
    for grant in grants:
        topic = _compiled("topic", grant.topic)
        channels = [_compiled("channel", channel) for channel in grant.channels]
        instructions += sum(expression.programsize for expression in (topic, *channels))
        if instructions > MAX_INSTRUCTIONS:
            raise BadAnswer(f"its regular expressions are too large, compiled over {MAX_INSTRUCTIONS} instructions")
        yield Rule(topic, channels, frozenset(grant.permissions))


def _compiled(what: str, pattern: str) -> Any:
    try:
        return _compile(pattern)
    except BadExpression as error:
        raise BadAnswer(f'unable to compile {what} "{pattern}" {error}') from None


@lru_cache(maxsize=_SHARED_EXPRESSIONS)
def _compile(pattern: str) -> Any:
    """Clients with the same permissions share their expressions."""
    return compiled(pattern.encode(), most_bytes=MAX_EXPRESSION_BYTES, captures=False)


def _matches(expression: Any, name: bytes) -> bool:
    return expression.search(name) is not None
