"""The answers of etcd's JSON gateway (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway), read strictly.

A primary serves because of these answers, so one that is not exactly as etcd writes it raises BadAnswer, and counts as
no answer, also one with other fields. Numbers of 64 bits are strings of digits; fields with the value 0, false or ""
are left out.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any, NamedTuple

_INT64_LIMIT = 1 << 63
_DIGITS = re.compile("-?[0-9]{1,19}")
_MOST_SHOWN = 80


class BadAnswer(ValueError):
    """The answer is not one that etcd gives; str(error) says why."""


class Entry(NamedTuple):
    """The value of a key. `revision` is that of its last change."""

    value: str
    revision: int


def lease_id(answer: Any, ttl_s: int) -> str:
    """Return the id of a lease that was granted for at least `ttl_s` seconds. Raises BadAnswer."""
    fields = _object(answer, "header", "ID", "TTL", "error")
    identity = _number(fields, "ID")
    if not identity or _number(fields, "TTL") < ttl_s:
        raise _not_understood(answer)
    return str(identity)


def is_renewed(answer: Any, identity: str, ttl_s: int) -> bool:
    """True if this lease lives for at least `ttl_s` seconds more; False if it has ended. Raises BadAnswer."""
    result = _object(_object(answer, "result").get("result"), "header", "ID", "TTL")
    remaining_s = _number(result, "TTL")
    if str(_number(result, "ID")) != identity or 0 < remaining_s < ttl_s or remaining_s < 0:
        raise _not_understood(answer)
    return remaining_s > 0


def written(answer: Any) -> int | None:
    """Return the revision of a transaction; None if its comparison did not hold. Raises BadAnswer."""
    fields = _object(answer, "header", "succeeded", "responses")
    revision = _revision(fields)
    succeeded = fields.get("succeeded", False)
    if not isinstance(succeeded, bool):
        raise _not_understood(answer)
    return revision if succeeded else None


def entry(answer: Any, key: str) -> Entry | None:
    """Return the value of a key that was asked for; None if there is no such key. Raises BadAnswer."""
    fields = _object(answer, "header", "kvs", "more", "count")
    _revision(fields)
    found = fields.get("kvs", [])
    if not isinstance(found, list) or len(found) > 1 or _number(fields, "count") != len(found):
        raise _not_understood(answer)
    if not found:
        return None
    pair = _object(found[0])
    value, revision = pair.get("value", ""), _number(pair, "mod_revision")
    if pair.get("key") != encoded(key) or not isinstance(value, str) or revision <= 0:
        raise _not_understood(answer)
    return Entry(b64decode(value, validate=True).decode(), revision)


def token(answer: Any) -> str:
    """Return the token of a login. Raises BadAnswer."""
    found = _object(answer).get("token")
    if not isinstance(found, str) or not found.isascii() or not found.isprintable() or not found:
        raise BadAnswer("etcd's answer to the login has no token")  # without the answer, which may contain one
    return found


def encoded(text: str) -> str:
    """Return a key or a value as etcd wants it."""
    return b64encode(text.encode()).decode()


def _object(value: Any, *names: str) -> dict[str, Any]:
    """Return an object that has none but these fields; any fields without names."""
    if not isinstance(value, dict) or (names and not value.keys() <= set(names)):
        raise _not_understood(value)
    return value


def _revision(fields: dict[str, Any]) -> int:
    revision = _number(_object(fields.get("header")), "revision")
    if revision <= 0:
        raise _not_understood(fields)
    return revision


def _number(fields: dict[str, Any], name: str) -> int:
    """Return a number of 64 bits; 0 if there is no such field."""
    value = fields.get(name, 0)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if type(value) is not int or not -_INT64_LIMIT <= value < _INT64_LIMIT:
        raise _not_understood(fields)
    return value


def _not_understood(answer: object) -> BadAnswer:
    return BadAnswer(f"an answer that etcd does not give: {repr(answer)[:_MOST_SHOWN]}")
