"""Sessions of Consul (https://developer.hashicorp.com/consul/api-docs/session).

The holder's name is the value of a key that a session has locked. Consul counts how often the key was locked; this
numbers the holders. Consul may keep a session for up to twice its time to live.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from nsqd_py.lease.members import Members
from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseUrl
from nsqd_py.net.http.client import BadStatus, HttpClient, Url

_PREFIX = "nsqd-py/"
_NOT_FOUND, _CONFLICT = 404, 409


class ConsulStore:
    """One lease in Consul."""

    def __init__(self, url: LeaseUrl, ttl_s: int, client: HttpClient) -> None:
        self._agents = Members("Consul", url)
        self._name = _PREFIX + url.name
        self._ttl_s = ttl_s
        # Consul takes an access token in the place of a user's password.
        token = url.login.partition(":")[2]
        self._client = replace(client, headers={"X-Consul-Token": token} if token else {})

    def acquire(self, holder: str) -> Lease | None:
        if self.holder() is not None:
            return None
        document = {"Name": self._name, "TTL": f"{self._ttl_s}s", "LockDelay": "0s", "Behavior": "delete"}
        session = self._ask("PUT", "/v1/session/create", document)["ID"]
        is_ours = False
        try:
            is_ours = self._ask("PUT", f"/v1/kv/{self._name}?acquire={session}", body=holder.encode()) is True
        finally:
            if not is_ours:
                self._ask("PUT", f"/v1/session/destroy/{session}")
        if not is_ours:
            return None
        entry = self._entry(self._name)
        if entry is None or entry.get("Session") != session:
            return None
        # With "delete" the count of locks begins again; the index at which the key was created does not.
        return Lease(int(entry["CreateIndex"]), session)

    def renew(self, lease: Lease) -> None:
        try:
            self._ask("PUT", f"/v1/session/renew/{lease.handle}")
        except LeaseError as error:
            if isinstance(error.__cause__, BadStatus) and error.__cause__.status == _NOT_FOUND:
                raise LeaseLost("Consul says that the session has ended") from error
            raise

    def release(self, lease: Lease) -> None:
        self._ask("PUT", f"/v1/session/destroy/{lease.handle}")

    def holder(self) -> str | None:
        entry = self._entry(self._name)
        if entry is None or not entry.get("Session"):
            return None
        return b64decode(entry.get("Value") or "").decode()

    def note(self) -> str:
        entry = self._entry(f"{self._name}/note")
        return b64decode(entry["Value"]).decode() if entry is not None else ""

    def write_note(self, lease: Lease, text: str) -> None:
        value = b64encode(text.encode()).decode()
        operations = [
            {"KV": {"Verb": "check-session", "Key": self._name, "Session": lease.handle}},
            {"KV": {"Verb": "set", "Key": f"{self._name}/note", "Value": value}},
        ]
        try:
            self._ask("PUT", "/v1/txn", operations)
        except LeaseError as error:
            if isinstance(error.__cause__, BadStatus) and error.__cause__.status == _CONFLICT:
                raise LeaseLost("another holder has the lease") from error
            raise

    def _entry(self, key: str) -> dict[str, Any] | None:
        try:
            found: Sequence[dict[str, Any]] = self._ask("GET", f"/v1/kv/{key}?consistent")
        except LeaseError as error:
            if isinstance(error.__cause__, BadStatus) and error.__cause__.status == _NOT_FOUND:
                return None
            raise
        return found[0] if found else None

    def _ask(self, method: str, path: str, document: Any = None, body: bytes | None = None) -> Any:
        if document is not None:
            body = orjson.dumps(document)

        def send(agent: Url) -> Any:
            return orjson.loads(self._client.exchange(method, replace(agent, path=path), body))

        return self._agents.ask(send, f"{method} {path}", may_repeat="acquire=" not in path)
