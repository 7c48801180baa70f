"""Leases of etcd, through the JSON gateway of its version 3 API.

| key              | value | its lease |
|------------------|-------|-----------|
| nsqd-py/NAME      | the address of the holder | that of the holder, which renews it |
| nsqd-py/NAME/last | who took or released the lease last | none |
| nsqd-py/NAME/note | the note of the last holder | none |

The revision at which a holder has written the first key numbers the holders. Whoever writes or deletes that key by hand
ends the lease: its holder asks with each renewal if the key is still as it wrote it. A key without a lease was not
written by an nsqd, and the next holder replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import gevent

from nsqd_py.lease import answers
from nsqd_py.lease.answers import Pair, encoded
from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseState, LeaseUrl, Note, check_holder
from nsqd_py.net.http import BadStatus, Unreachable, Url, parse_url
from nsqd_py.net.http.client import HttpClient

T = TypeVar("T")

_UNAUTHORIZED = 401
_MOST_ANSWER_BYTES = 64 * 1024
_SHOWN_CHARACTERS = 80
# The beginnings of the value of the key `last`.
_TAKEN = "taken by"
_RELEASED = "released by"
# etcd rounds the time to live down to seconds.
_ROUNDED_S = 1.0
# The names of the fields of what a transaction compares.
_FIELDS = {"MOD": "mod_revision", "LEASE": "lease", "VALUE": "value"}


class EtcdStore:
    """One lease in an etcd cluster, for `ttl_s` seconds. Each request goes first to the member that answered last."""

    def __init__(self, url: LeaseUrl, ttl_s: int, client: HttpClient) -> None:
        scheme = "https" if url.is_secure else "http"
        self._members = [parse_url(f"{scheme}://{address}/") for address in url.addresses]
        self.key = f"nsqd-py/{url.name}"
        self.title = f"the key {self.key} of etcd"
        self.delete_command = f"etcdctl del {self.key}"
        self.note_key = f"{self.key}/note"
        self.note_title = f"the key {self.note_key} of etcd"
        self._last_key = f"{self.key}/last"
        self._login = url.login
        self._token = ""
        self._ttl_s = ttl_s
        self._client = replace(client, max_answer_bytes=_MOST_ANSWER_BYTES)

    def poll(self, handle: str = "") -> LeaseState:
        """Return who has the lease. Raises LeaseError.

        handle  the lease that the last poll has found: if it holds the key still, the answer says how long it lives
        """
        lives_s = self._lives_s(handle) if handle else None
        keys = (self.key, self._last_key)
        reads = [{"request_range": {"key": encoded(key)}} for key in keys]
        # A read of etcd is linearizable by default: a member that is cut off from the others does not answer it.
        pair, last = self._ask(
            "kv/txn", {"success": reads}, lambda answer: answers.entries(answer, keys), repeats=True
        )
        found = LeaseState()
        if pair is not None:
            found = self._described(pair, lives_s if pair.lease == handle else None)
        if last is None:
            return found
        return found._replace(turn=last.revision, is_released=last.text.startswith(_RELEASED))

    def _described(self, pair: Pair, lives_s: float | None) -> LeaseState:
        found = LeaseState(pair.revision, pair.lease, lives_s=lives_s)
        if not pair.lease:
            return found._replace(stranger=_shown(pair))
        try:
            return found._replace(holder=check_holder(pair.text))
        except ValueError:
            return found._replace(stranger=_shown(pair))

    def _lives_s(self, handle: str) -> float | None:
        """Return the longest time that a lease lives unless it is renewed; None if etcd does not say."""
        try:
            left_s = self._ask(
                "lease/timetolive", {"ID": handle}, lambda answer: answers.remaining_s(answer, handle)
            )
        except LeaseError:  # without this answer, others wait longer before they serve
            return None
        return left_s + _ROUNDED_S if left_s is not None else 0.0

    def acquire(self, holder: str, state: LeaseState) -> Lease | None:
        """Take the lease, unless something has changed since the poll. `holder` is an address. Raises LeaseError."""
        handle = self._ask(
            "lease/grant", {"TTL": self._ttl_s}, lambda answer: answers.lease_id(answer, self._ttl_s)
        )
        number = None
        try:
            number = self._write(
                [_is("MOD", self.key, state.number), _is("MOD", self._last_key, state.turn)],
                _put(self.key, holder, lease=handle),
                _put(self._last_key, f"{_TAKEN} {holder}"),
            )
        finally:
            if number is None:
                self._revoke(handle)
        if number is not None:
            return Lease(number, handle, holder)
        return None

    def renew(self, lease: Lease) -> None:
        """Let the lease live for its whole time again, if its key is as its holder wrote it. Raises LeaseLost, LeaseError."""
        # Both requests at once: an etcd or an event loop that is slow delays a renewal only once.
        keeping_alive = gevent.spawn(self._failure_to_keep_alive, lease)
        try:
            self._check(lease)
            failure = keeping_alive.get()
        finally:
            keeping_alive.kill(block=False)
        if failure is not None:
            raise failure

    def _failure_to_keep_alive(self, lease: Lease) -> LeaseError | None:
        document = {"ID": lease.handle}
        ttl_s = self._ttl_s
        try:
            lives = self._ask(
                "lease/keepalive", document, lambda answer: answers.is_renewed(answer, lease.handle, ttl_s)
            )
        except LeaseError as error:
            return error
        if lives:
            return None
        return LeaseLost("etcd says that the lease has ended")

    def _check(self, lease: Lease) -> None:
        """Raise LeaseLost if anything about the key has changed since its holder wrote it."""
        document = {
            "compare": self._is_held(lease),
            "failure": [{"request_range": {"key": encoded(self.key)}}],
        }
        has_changed, pair = self._ask(
            "kv/txn", document, lambda answer: answers.failed(answer, self.key), repeats=True
        )
        if not has_changed:
            return
        if pair is None:
            raise LeaseLost(f"the key {self.key} was deleted, or its lease has ended")
        raise LeaseLost(f"the key {self.key} was overwritten: {_shown(pair)}")

    def _is_held(self, lease: Lease) -> list[dict[str, Any]]:
        """Return the comparisons that this lease holds the key, as its holder wrote it."""
        return [
            _is("MOD", self.key, lease.number),
            _is("LEASE", self.key, lease.handle),
            _is("VALUE", self.key, encoded(lease.holder)),
        ]

    def release(self, lease: Lease) -> None:
        """End the lease now, as its holder that does not serve any more. Raises LeaseError."""
        delete = {"request_delete_range": {"key": encoded(self.key)}}
        try:
            self._write(self._is_held(lease), delete, _put(self._last_key, f"{_RELEASED} {lease.holder}"))
        finally:
            self._revoke(lease.handle)

    def _revoke(self, handle: str) -> None:
        self._ask("lease/revoke", {"ID": handle}, lambda _: None)

    def note(self) -> Note:
        """Return the note; an empty one if there is none. Raises LeaseError."""
        document = {"key": encoded(self.note_key)}
        found = self._ask("kv/range", document, lambda answer: answers.entry(answer, self.note_key))
        if found is not None:
            return Note(found.text, found.revision)
        return Note()

    def write_note(self, lease: Lease, text: str, revision: int) -> int:
        """Replace the note that has this revision, as the holder of this lease; return the new revision.

        Raises LeaseLost, and LeaseError also if the note has another revision.
        """
        is_same = _is("MOD", self.note_key, revision)
        new_revision = self._write([*self._is_held(lease), is_same], _put(self.note_key, text))
        if new_revision is None:
            self._check(lease)
            raise LeaseError(f"the note {self.note_key} was changed, probably by a request without an answer")
        return new_revision

    def _write(self, compare: list[dict[str, Any]], *operations: dict[str, Any]) -> int | None:
        """Write if all comparisons hold; return the revision, or None if they do not. Raises LeaseError."""
        return self._ask(
            "kv/txn", {"compare": compare, "success": list(operations)}, answers.written, repeats=False
        )

    def _ask(
        self, path: str, document: dict[str, Any], read: Callable[[Any], T], *, repeats: bool = True
    ) -> T:
        """Return what `read` makes of the first answer that it understands. Raises LeaseError.

        repeats  False if a request that may have been carried out must not be sent to another member
        """
        failures = []
        for member in list(self._members):
            try:
                return read(self._ask_member(member, path, document))
            except Exception as error:  # noqa: BLE001 - whatever an answer of another program causes, it is no answer
                failures.append(f"{member.origin} - {error or repr(error)}")
                self._members.remove(member)
                self._members.append(member)
                if not repeats and not isinstance(error, Unreachable):
                    break
        raise LeaseError(f"no answer from etcd to {path}: {'; '.join(failures)}")

    def _ask_member(self, member: Url, path: str, document: dict[str, Any]) -> Any:
        if self._login and not self._token:
            name, _, password = self._login.partition(":")
            self._token = answers.token(
                self._send(member, "auth/authenticate", {"name": name, "password": password})
            )
        try:
            return self._send(member, path, document)
        except BadStatus as refusal:
            if refusal.status == _UNAUTHORIZED:
                self._token = ""  # it has expired
            raise

    def _send(self, member: Url, path: str, document: dict[str, Any]) -> Any:
        headers = (
            {**self._client.headers, "Authorization": self._token} if self._token else self._client.headers
        )
        return replace(self._client, headers=headers).ask(replace(member, path=f"/v3/{path}"), document)


def _is(target: str, key: str, value: int | str) -> dict[str, Any]:
    """Return the comparison that a key has this revision, lease or value. A key that does not exist has revision 0."""
    return {"key": encoded(key), "target": target, "result": "EQUAL", _FIELDS[target]: value}


def _put(key: str, value: str, **fields: str) -> dict[str, Any]:
    return {"request_put": {"key": encoded(key), "value": encoded(value), **fields}}


def _shown(pair: Pair) -> str:
    """Return for people what a key has. etcdctl shows leases in hexadecimal too."""
    lease = f"with the lease {int(pair.lease):x}" if pair.lease else "without a lease"
    return f"its value is {pair.text[:_SHOWN_CHARACTERS]!r}, {lease}"
