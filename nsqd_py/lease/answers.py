"""The answers of etcd's JSON gateway (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway), read strictly.

A primary serves because of these answers, so one that is not exactly as etcd writes it raises ValueError, and counts as
no answer, also one with other fields. Numbers of 64 bits are strings of digits; fields with the value 0, false or ""
are left out.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, NamedTuple

_INT64_LIMIT = 1 << 63
_DIGITS = re.compile("-?[0-9]{1,19}")
# What etcd answers instead of the remaining time of a lease that has ended.
_ENDED_S = -1


class Pair(NamedTuple):
    """A key's value, which anyone may have written.

    revision  that of its last change
    lease     the id of its lease; empty if it has none
    """

    value: bytes
    revision: int
    lease: str

    @property
    def text(self) -> str:
        """The value, with a replacement character for what is not UTF-8."""
        return self.value.decode(errors="replace")


def lease_id(answer: Any, ttl_s: int) -> str:
    """Return the id of a lease that was granted for at least `ttl_s` seconds. Raises ValueError."""
    fields = _object(answer, "header", "ID", "TTL", "error")
    identity = _number(fields, "ID")
    if not identity or _number(fields, "TTL") < ttl_s:
        raise _not_understood(answer)
    return str(identity)


def is_renewed(answer: Any, identity: str, ttl_s: int) -> bool:
    """True if this lease lives for at least `ttl_s` seconds more; False if it has ended. Raises ValueError."""
    result = _object(_object(answer, "result").get("result"), "header", "ID", "TTL")
    remaining_s = _number(result, "TTL")
    if str(_number(result, "ID")) != identity or 0 < remaining_s < ttl_s or remaining_s < 0:
        raise _not_understood(answer)
    return remaining_s > 0


def remaining_s(answer: Any, identity: str) -> int | None:
    """Return the time to live of a lease, rounded down to seconds; None if it has ended. Raises ValueError."""
    fields = _object(answer, "header", "ID", "TTL", "grantedTTL")
    _revision(fields)
    time_s = _number(fields, "TTL")
    granted_s = _number(fields, "grantedTTL")
    if str(_number(fields, "ID")) != identity:
        raise _not_understood(answer)
    if time_s == _ENDED_S:
        return None
    if time_s < 0 or granted_s <= 0:
        raise _not_understood(answer)
    return time_s


def written(answer: Any) -> int | None:
    """Return the revision of a transaction; None if its comparison did not hold. Raises ValueError."""
    fields = _transaction(answer)
    if fields.get("succeeded"):
        return _revision(fields)
    return None


def failed(answer: Any, key: str) -> tuple[bool, Pair | None]:
    """Return True if a comparison did not hold, and the value of its key then. Raises ValueError."""
    fields = _transaction(answer)
    if fields.get("succeeded"):
        return False, None
    (found,) = _ranges(fields, (key,))
    return True, found


def entries(answer: Any, keys: Sequence[str]) -> list[Pair | None]:
    """Return the values of keys that a transaction without a comparison has read. Raises ValueError."""
    fields = _transaction(answer)
    if not fields.get("succeeded"):
        raise _not_understood(answer)
    return _ranges(fields, keys)


def entry(answer: Any, key: str) -> Pair | None:
    """Return the value of a key that was asked for; None if there is no such key. Raises ValueError."""
    fields = _object(answer, "header", "kvs", "more", "count")
    _revision(fields)
    found = fields.get("kvs", [])
    if not isinstance(found, list) or len(found) > 1 or _number(fields, "count") != len(found):
        raise _not_understood(answer)
    if not found:
        return None
    pair = _object(found[0])
    value = pair.get("value", "")
    revision = _number(pair, "mod_revision")
    lease = _number(pair, "lease")
    if pair.get("key") != encoded(key) or not isinstance(value, str) or revision <= 0:
        raise _not_understood(answer)
    return Pair(b64decode(value, validate=True), revision, str(lease) if lease else "")


def token(answer: Any) -> str:
    """Return the token of a login. Raises ValueError."""
    found = _object(answer).get("token")
    if not isinstance(found, str) or not found.isascii() or not found.isprintable() or not found:
        # Without the answer, which may contain one.
        raise ValueError("etcd's answer to the login has no token")
    return found


def encoded(text: str) -> str:
    """Encode a key or a value for etcd."""
    return b64encode(text.encode()).decode()


def _transaction(answer: Any) -> dict[str, Any]:
    fields = _object(answer, "header", "succeeded", "responses")
    _revision(fields)
    if type(fields.get("succeeded", False)) is not bool:
        raise _not_understood(answer)
    return fields


def _ranges(fields: dict[str, Any], keys: Sequence[str]) -> list[Pair | None]:
    responses = fields.get("responses")
    if not isinstance(responses, list) or len(responses) != len(keys):
        raise _not_understood(fields)
    found = [_object(response, "response_range").get("response_range") for response in responses]
    return [entry(each, key) for each, key in zip(found, keys, strict=True)]


def _object(value: Any, *names: str) -> dict[str, Any]:
    """Return an object that has no other fields than these; without names, it may have any."""
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


def _not_understood(answer: object) -> ValueError:
    return ValueError(f"an answer that etcd does not give: {repr(answer)[:80]}")
