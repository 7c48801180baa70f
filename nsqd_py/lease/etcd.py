"""Leases of etcd, through the JSON gateway of its version 3 API (https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway).

The holder's name is the value of a key that a lease of etcd keeps alive. The revision at which the key was created
numbers the holders.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nsqd_py.lease.members import Members
from nsqd_py.lease.store import Lease, LeaseLost, LeaseUrl
from nsqd_py.net.http.client import BadStatus, HttpClient, Url

_PREFIX = "nsqd-py/"
_UNAUTHORIZED = 401


class EtcdStore:
    """One lease in an etcd cluster."""

    def __init__(self, url: LeaseUrl, ttl_s: int, client: HttpClient) -> None:
        self._members = Members("etcd", url)
        self._key = _encoded(_PREFIX + url.name)
        self._note_key = _encoded(f"{_PREFIX}{url.name}/note")
        self._login = url.login
        self._token = ""
        self._ttl_s = ttl_s
        self._client = client

    def acquire(self, holder: str) -> Lease | None:
        if self.holder() is not None:
            return None
        lease_id = self._ask("lease/grant", {"TTL": self._ttl_s})["ID"]
        lease = None
        try:
            lease = self._put_if_absent(holder, lease_id)
        finally:
            if lease is None:
                self._ask("lease/revoke", {"ID": lease_id})
        return lease

    def _put_if_absent(self, holder: str, lease_id: str) -> Lease | None:
        answer = self._ask(
            "kv/txn",
            {
                "compare": [{"key": self._key, "target": "CREATE", "result": "EQUAL", "create_revision": 0}],
                "success": [{"request_put": {"key": self._key, "value": _encoded(holder), "lease": lease_id}}],
            },
        )
        return Lease(int(answer["header"]["revision"]), lease_id) if answer.get("succeeded") else None

    def renew(self, lease: Lease) -> None:
        answer = self._ask("lease/keepalive", {"ID": lease.handle})
        if int(answer.get("result", {}).get("TTL", 0)) <= 0:
            raise LeaseLost("etcd says that the lease has ended")

    def release(self, lease: Lease) -> None:
        self._ask("lease/revoke", {"ID": lease.handle})

    def holder(self) -> str | None:
        # A read of etcd is linearizable by default: a member that is cut off from the others does not answer it.
        return self._value(self._key)

    def note(self) -> str:
        return self._value(self._note_key) or ""

    def write_note(self, lease: Lease, text: str) -> None:
        is_ours = {"key": self._key, "target": "CREATE", "result": "EQUAL", "create_revision": lease.number}
        put = {"request_put": {"key": self._note_key, "value": _encoded(text)}}
        if not self._ask("kv/txn", {"compare": [is_ours], "success": [put]}).get("succeeded"):
            raise LeaseLost("another holder has the lease")

    def _value(self, key: str) -> str | None:
        found: Sequence[dict[str, str]] = self._ask("kv/range", {"key": key}).get("kvs", ())
        return b64decode(found[0].get("value", "")).decode() if found else None

    def _ask(self, path: str, document: dict[str, Any]) -> Any:
        return self._members.ask(
            lambda member: self._ask_member(member, path, document), path, may_repeat=path != "kv/txn"
        )

    def _ask_member(self, member: Url, path: str, document: dict[str, Any]) -> Any:
        if self._login and not self._token:
            name, _, password = self._login.partition(":")
            self._token = self._send(member, "auth/authenticate", {"name": name, "password": password})["token"]
        try:
            return self._send(member, path, document)
        except BadStatus as refusal:
            if refusal.status == _UNAUTHORIZED:
                self._token = ""  # it has expired
            raise

    def _send(self, member: Url, path: str, document: dict[str, Any]) -> Any:
        client = self._client
        if self._token:
            client = replace(client, headers={**client.headers, "Authorization": self._token})
        return client.ask(replace(member, path=f"/v3/{path}"), document)


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
