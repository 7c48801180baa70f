"""Somebody who changes the keys of a lease in etcd by hand, as with etcdctl."""

from __future__ import annotations

import json
import urllib.request
from base64 import b64decode, b64encode
from typing import Any

_TIMEOUT_S = 10.0


class EtcdOperator:
    """Writes and deletes keys of the etcd at an address, through its JSON gateway: a real one, or the one in memory."""

    def __init__(self, address: str) -> None:
        self._address = address

    def ask(self, path: str, **fields: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://{self._address}/v3/{path}",
            json.dumps(fields).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def pair(self, key: str) -> dict[str, Any] | None:
        """Return the key as etcd's JSON has it, but with its value as text; None if there is no such key."""
        found = self.ask("kv/range", key=_encoded(key)).get("kvs", [])
        return found[0] | {"value": b64decode(found[0].get("value", "")).decode()} if found else None

    def put(self, key: str, value: str, lease: str = "0") -> None:
        """`etcdctl put --lease=LEASE KEY VALUE`; 0 is no lease."""
        self.ask("kv/put", key=_encoded(key), value=_encoded(value), lease=lease)

    def delete(self, key: str) -> None:
        """`etcdctl del KEY`."""
        self.ask("kv/deleterange", key=_encoded(key))

    def delete_prefix(self, prefix: str) -> None:
        """`etcdctl del --prefix PREFIX`."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        self.ask("kv/deleterange", key=_encoded(prefix), range_end=_encoded(end))

    def grant(self, ttl_s: int) -> str:
        """`etcdctl lease grant TTL`; return the lease."""
        return str(self.ask("lease/grant", TTL=ttl_s)["ID"])

    def revoke(self, lease: str) -> None:
        """`etcdctl lease revoke LEASE`."""
        self.ask("lease/revoke", ID=lease)

    def compact(self) -> None:
        """`etcdctl compact REVISION`, with the present revision."""
        revision = self.ask("kv/range", key=_encoded("any"))["header"]["revision"]
        self.ask("kv/compaction", revision=revision)


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
