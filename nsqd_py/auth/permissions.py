"""The answer of an auth server, and the permissions in it.

    {"ttl": 3600, "identity": "...", "identity_url": "...",
     "authorizations": [{"topic": "...", "channels": ["..."], "permissions": ["publish", "subscribe"]}]}

Topic and channels are regular expressions that match anywhere in a name. RE2 matches them in time linear in the
length of the name. With another engine, an expression in an answer could take exponential time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from nsqd_py.settings.regex import BadExpression, compiled

PUBLISH = "publish"
SUBSCRIBE = "subscribe"

T = TypeVar("T")
_PERMISSIONS = frozenset((PUBLISH, SUBSCRIBE))
_MAX_INT = (1 << 63) - 1

# Bounds on the cost of one answer: bytes of one compiled expression, and instructions of all expressions.
# 250 k instructions are some ten thousand names; matching all of them with one name takes up to 50 ms.
MAX_EXPRESSION_BYTES = 1024 * 1024
MAX_INSTRUCTIONS = 250_000
_SHARED_EXPRESSIONS = 1024


class BadAuthAnswer(Exception):
    """The document is not a valid answer of an auth server; str(error) says why."""


class AuthGrant(NamedTuple):
    """One of the authorizations in an answer."""

    topic: str
    channels: list[str]
    permissions: list[str]


class AuthAnswer(NamedTuple):
    """A whole answer, with its regular expressions not yet compiled."""

    ttl_s: int
    identity: str
    identity_url: str
    grants: list[AuthGrant]


class AuthRule(NamedTuple):
    """A grant with compiled expressions."""

    topic: Any
    channels: list[Any]
    permissions: frozenset[str]

    def permits(self, topic_name: bytes, channel_name: bytes) -> bool:
        """True if the rule permits to subscribe to the channel; with an empty channel, to publish to the topic.

        As in Go, an expression for channels has to match the empty channel too.
        """
        if (SUBSCRIBE if channel_name else PUBLISH) not in self.permissions:
            return False
        if not _matches(self.topic, topic_name):
            return False
        return any(_matches(channel, channel_name) for channel in self.channels)


class Authorization(NamedTuple):
    """The permissions of the holder of a secret, valid for `ttl_s` seconds."""

    ttl_s: int
    identity: str
    identity_url: str
    rules: Sequence[AuthRule]

    def permits(self, topic_name: bytes, channel_name: bytes) -> bool:
        """True if a rule permits to subscribe to the channel; with an empty channel, to publish to the topic."""
        return any(rule.permits(topic_name, channel_name) for rule in self.rules)


# ---- from the answer


def read_answer(document: Any) -> AuthAnswer:
    """Check and return an answer. Raises BadAuthAnswer.

    As in Go's JSON decoder, the case of keys does not matter, and null means that a key is missing.
    """
    fields = _object(document, "the answer")
    ttl_s = fields.get("ttl", 0)
    if type(ttl_s) is not int or ttl_s > _MAX_INT:
        raise BadAuthAnswer("ttl is not an integer")
    grants = [_read_grant(entry) for entry in _field(fields, "authorizations", list)]
    if ttl_s <= 0:
        raise BadAuthAnswer(f"invalid TTL {ttl_s} (must be >0)")
    return AuthAnswer(ttl_s, _field(fields, "identity", str), _field(fields, "identity_url", str), grants)


def _read_grant(entry: Any) -> AuthGrant:
    fields = _object(entry, "an authorization")
    grant = AuthGrant(_field(fields, "topic", str), _texts(fields, "channels"), _texts(fields, "permissions"))
    for permission in grant.permissions:
        if permission not in _PERMISSIONS:
            raise BadAuthAnswer(f"unknown permission {permission}")
    return grant


def _object(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadAuthAnswer(f"{what} is not an object")
    return {key.lower(): item for key, item in value.items() if item is not None}


def _field(fields: dict[str, Any], name: str, kind: type[T]) -> T:
    value = fields.get(name, kind())
    if not isinstance(value, kind):
        raise BadAuthAnswer(f"{name} is not a {'list' if kind is list else 'string'}")
    return value


def _texts(fields: dict[str, Any], name: str) -> list[str]:
    found: list[str] = []
    for item in _field(fields, name, list):
        given = {}
        if item is not None:
            given[name] = item
        found.append(_field(given, name, str))
    return found


# ---- regular expressions


def compile_rules(
    grants: Sequence[AuthGrant], rest: Callable[[], object] = lambda: None
) -> Iterator[AuthRule]:
    """Yield the rules. `rest` is called before each expression is compiled. Raises BadAuthAnswer."""
    instructions = 0

    def expression(what: str, pattern: str) -> Any:
        nonlocal instructions
        rest()
        try:
            found = _compile(pattern)
        except BadExpression as error:
            raise BadAuthAnswer(f'unable to compile {what} "{pattern}" {error}') from None
        instructions += found.programsize
        if instructions > MAX_INSTRUCTIONS:
            raise BadAuthAnswer(
                f"its regular expressions are too large, compiled over {MAX_INSTRUCTIONS} instructions"
            )
        return found

    for grant in grants:
        topic = expression("topic", grant.topic)
        channels = [expression("channel", each) for each in grant.channels]
        yield AuthRule(topic, channels, frozenset(grant.permissions))


@lru_cache(maxsize=_SHARED_EXPRESSIONS)
def _compile(pattern: str) -> Any:
    """Compile an expression. Clients with the same permissions share the result."""
    return compiled(pattern.encode(), most_bytes=MAX_EXPRESSION_BYTES, captures=False)


def _matches(expression: Any, name: bytes) -> bool:
    return expression.search(name) is not None
