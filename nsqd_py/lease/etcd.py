"""The answers of etcd's JSON gateway (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway), read strictly.

A primary serves because of these answers, so one that is not exactly as etcd writes it raises ValueError, and counts as
no answer, also one with other fields. Numbers of 64 bits are strings of digits; fields with the value 0, false or ""
are left out.

Leases of etcd, through the JSON gateway of its version 3 API.

The holder's address is the value of a key that a lease of etcd keeps alive. The revision at which the key was created
numbers the holders.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from nsqd_py.lease.store import NO_NOTE, Lease, LeaseError, LeaseLost, LeaseUrl, Note, check_holder
from nsqd_py.net.http.client import BadStatus, HttpClient, Unreachable, Url, parse_url

_INT64_LIMIT = 1 << 63
_DIGITS = re.compile("-?[0-9]{1,19}")


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


def written(answer: Any) -> int | None:
    """Return the revision of a transaction; None if its comparison did not hold. Raises ValueError."""
    fields = _object(answer, "header", "succeeded", "responses")
    revision = _revision(fields)
    if type(fields.get("succeeded", False)) is not bool:
        raise _not_understood(answer)
    return revision if fields.get("succeeded") else None


def entry(answer: Any, key: str) -> Note | None:
    """Return the value of a key that was asked for; None if there is no such key. Raises ValueError."""
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
    return Note(b64decode(value, validate=True).decode(), revision)


def token(answer: Any) -> str:
    """Return the token of a login. Raises ValueError."""
    found = _object(answer).get("token")
    if not isinstance(found, str) or not found.isascii() or not found.isprintable() or not found:
        raise ValueError("etcd's answer to the login has no token")  # without the answer, which may contain one
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


def _not_understood(answer: object) -> ValueError:
    return ValueError(f"an answer that etcd does not give: {repr(answer)[:80]}")


T = TypeVar("T")

_UNAUTHORIZED = 401
_MOST_ANSWER_BYTES = 64 * 1024


class EtcdStore:
    """One lease in an etcd cluster, for `ttl_s` seconds. Each request goes first to the member that answered last."""

    def __init__(self, url: LeaseUrl, ttl_s: int, client: HttpClient) -> None:
        scheme = "https" if url.is_secure else "http"
        self._members = [parse_url(f"{scheme}://{address}/") for address in url.addresses]
        self._key = f"nsqd-py/{url.name}"
        self._note_key = f"{self._key}/note"
        self._login = url.login
        self._token = ""
        self._ttl_s = ttl_s
        self._client = replace(client, max_answer_bytes=_MOST_ANSWER_BYTES)

    def acquire(self, holder: str) -> Lease | None:
        """Take the lease; None if another holder has it. `holder` is an address. Raises LeaseError."""
        if self.holder() is not None:
            return None
        handle = self._ask("lease/grant", {"TTL": self._ttl_s}, lambda answer: lease_id(answer, self._ttl_s))
        number = None
        try:
            number = self._put(self._key, holder, [_created(self._key, 0)], lease=handle)
        finally:
            if number is None:
                self.release(Lease(0, handle))
        return Lease(number, handle) if number is not None else None

    def renew(self, lease: Lease) -> None:
        """Let the lease live for its whole time again. Raises LeaseLost, LeaseError."""
        if not self._ask("lease/keepalive", {"ID": lease.handle}, lambda answer: is_renewed(answer, lease.handle, self._ttl_s)):
            raise LeaseLost("etcd says that the lease has ended")

    def release(self, lease: Lease) -> None:
        """End the lease now. Raises LeaseError."""
        self._ask("lease/revoke", {"ID": lease.handle}, lambda _: None)

    def holder(self) -> str | None:
        """Return the address of the holder, host:port; None if there is no holder. Raises LeaseError."""
        # A read of etcd is linearizable by default: a member that is cut off from the others does not answer it.
        return self._read(self._key, lambda found: check_holder(found.text) if found is not None else None)

    def note(self) -> Note:
        """Return the note; NO_NOTE if there is none. Raises LeaseError."""
        return self._read(self._note_key, lambda found: found or NO_NOTE)

    def _read(self, key: str, understand: Callable[[Note | None], T]) -> T:
        return self._ask("kv/range", {"key": encoded(key)}, lambda answer: understand(entry(answer, key)))

    def write_note(self, lease: Lease, text: str, revision: int) -> int:
        """Replace the note that has this revision, as the holder of this lease; return the new revision.

        Raises LeaseLost, and LeaseError also if the note has another revision.
        """
        is_same = {"key": encoded(self._note_key), "target": "MOD", "result": "EQUAL", "mod_revision": revision}
        new_revision = self._put(self._note_key, text, [_created(self._key, lease.number), is_same])
        if new_revision is None and self.note().revision == revision:
            raise LeaseLost("another holder has the lease")
        if new_revision is None:
            raise LeaseError("the note of the lease was changed, probably by a request without an answer")
        return new_revision

    def _put(self, key: str, value: str, compare: list[dict[str, Any]], **fields: str) -> int | None:
        """Write a key if all comparisons hold; return the revision, or None if they do not."""
        put = {"request_put": {"key": encoded(key), "value": encoded(value), **fields}}
        return self._ask("kv/txn", {"compare": compare, "success": [put]}, written)

    def _ask(self, path: str, document: dict[str, Any], read: Callable[[Any], T]) -> T:
        """Return what `read` makes of the first answer that it understands. Raises LeaseError."""
        failures = []
        for member in list(self._members):
            try:
                return read(self._ask_member(member, path, document))
            except Exception as error:  # noqa: BLE001 - whatever an answer of another program causes, it is no answer
                failures.append(f"{member.place} - {error or repr(error)}")
                self._members.remove(member)
                self._members.append(member)
                # A transaction that may have been carried out must not be sent to another member.
                if path == "kv/txn" and not isinstance(error, Unreachable):
                    break
        raise LeaseError(f"no answer from etcd to {path}: {'; '.join(failures)}")

    def _ask_member(self, member: Url, path: str, document: dict[str, Any]) -> Any:
        if self._login and not self._token:
            name, _, password = self._login.partition(":")
            self._token = token(self._send(member, "auth/authenticate", {"name": name, "password": password}))
        try:
            return self._send(member, path, document)
        except BadStatus as refusal:
            if refusal.status == _UNAUTHORIZED:
                self._token = ""  # it has expired
            raise

    def _send(self, member: Url, path: str, document: dict[str, Any]) -> Any:
        headers = {**self._client.headers, "Authorization": self._token} if self._token else self._client.headers
        return replace(self._client, headers=headers).ask(replace(member, path=f"/v3/{path}"), document)


def _created(key: str, revision: int) -> dict[str, Any]:
    """Return the comparison that a key was created at a revision; 0 if it does not exist."""
    return {"key": encoded(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision}
