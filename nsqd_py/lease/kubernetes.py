"""Lease objects of Kubernetes (https://kubernetes.io/docs/concepts/architecture/leases), from inside a pod.

Kubernetes ends no lease by itself. Who wants the lease watches it: when its holder has not renewed it for its duration,
by the watcher's own steady clock, the watcher replaces the holder. Two watchers cannot both do so, since Kubernetes
refuses a change of a version that is no longer the newest. `leaseTransitions` numbers the holders.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import orjson

from nsqd_py.lease.store import Lease, LeaseError, LeaseLost, LeaseUrl
from nsqd_py.net.http.client import BadStatus, HttpClient, HttpClientError, Url, parse_url
from nsqd_py.net.tls_context import client_context

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NOTE = "nsqd-py/note"  # an annotation
_CREATED, _NOT_FOUND, _CONFLICT = 201, 404, 409


class KubernetesStore:
    """One Lease object. `read_token` returns the service account's token, which Kubernetes replaces now and then."""

    def __init__(
        self,
        url: LeaseUrl,
        ttl_s: int,
        client: HttpClient,
        server: Url,
        read_token: Callable[[], str],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        namespace, _, self._name = url.name.partition("/")
        self._leases = replace(server, path=f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
        self._lease = replace(self._leases, path=f"{self._leases.path}/{self._name}")
        self._ttl_s = ttl_s
        self._client = client
        self._read_token = read_token
        self._clock = clock
        # The version of the lease that was read last, and when it was read first.
        self._seen_version = ""
        self._seen_at_s = 0.0

    def acquire(self, holder: str) -> Lease | None:
        found = self._read()
        if found is None:
            return self._write("POST", self._leases, {"metadata": {"name": self._name}, "spec": self._spec(holder, 1)})
        spec = found.get("spec", {})
        if self._is_held(found):
            return None
        number = int(spec.get("leaseTransitions") or 0) + 1
        return self._write("PUT", self._lease, {"metadata": found["metadata"], "spec": self._spec(holder, number)})

    def renew(self, lease: Lease) -> None:
        found = self._own(lease)
        spec = {**found["spec"], "renewTime": _now()}
        if self._write("PUT", self._lease, {"metadata": found["metadata"], "spec": spec}) is None:
            raise LeaseLost("another holder has changed the lease")

    def release(self, lease: Lease) -> None:
        found = self._own(lease)
        spec = {**found["spec"], "holderIdentity": "", "renewTime": _now()}
        self._write("PUT", self._lease, {"metadata": found["metadata"], "spec": spec})

    def holder(self) -> str | None:
        found = self._read()
        return str(found["spec"]["holderIdentity"]) if found is not None and self._is_held(found) else None

    def note(self) -> str:
        found = self._read()
        return str((found["metadata"].get("annotations") or {}).get(_NOTE, "")) if found is not None else ""

    def write_note(self, lease: Lease, text: str) -> None:
        found = self._own(lease)
        found["metadata"].setdefault("annotations", {})[_NOTE] = text
        if self._write("PUT", self._lease, {"metadata": found["metadata"], "spec": found["spec"]}) is None:
            raise LeaseLost("another holder has changed the lease")

    def _own(self, lease: Lease) -> dict[str, Any]:
        """Return the lease as it is stored. Raises LeaseLost if another holder has taken it."""
        found = self._read()
        if found is None or int(found.get("spec", {}).get("leaseTransitions") or 0) != lease.number:
            raise LeaseLost("another holder has the lease")
        return found

    def _is_held(self, found: dict[str, Any]) -> bool:
        spec = found.get("spec", {})
        if not spec.get("holderIdentity"):
            return False
        duration_s = float(spec.get("leaseDurationSeconds") or self._ttl_s)
        return self._clock() - self._seen_at_s < duration_s

    def _spec(self, holder: str, number: int) -> dict[str, Any]:
        now = _now()
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": self._ttl_s,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": number,
        }

    def _read(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = orjson.loads(self._send("GET", self._lease))
        except BadStatus as refusal:
            if refusal.status == _NOT_FOUND:
                return None
            raise LeaseError(f"Kubernetes refused to read the lease: {refusal}") from refusal
        version = found["metadata"]["resourceVersion"]
        if version != self._seen_version:
            self._seen_version = version
            self._seen_at_s = self._clock()
        return found

    def _write(self, method: str, url: Url, document: dict[str, Any]) -> Lease | None:
        """Write the lease; None if somebody else has changed it meanwhile."""
        document = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **document}
        try:
            self._send(method, url, orjson.dumps(document))
        except BadStatus as refusal:
            if refusal.status == _CONFLICT:
                return None
            if refusal.status != _CREATED:
                raise LeaseError(f"Kubernetes refused to write the lease: {refusal}") from refusal
        return Lease(document["spec"]["leaseTransitions"], None)

    def _send(self, method: str, url: Url, body: bytes | None = None) -> bytes:
        headers = {"Authorization": f"Bearer {self._read_token()}", "Content-Type": "application/json"}
        try:
            return self._client.exchange(method, url, body, headers)
        except BadStatus:
            raise
        except HttpClientError as error:
            raise LeaseError(f"no answer from Kubernetes: {error}") from error


def in_cluster(client: HttpClient) -> tuple[HttpClient, Url, Callable[[], str]]:
    """Return the client, the address and the token of the API server that this pod belongs to.

    Raises ValueError outside a pod.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ValueError("a lease of Kubernetes can be used only in a pod: KUBERNETES_SERVICE_HOST is not set")
    from gevent import ssl  # slow to import; only TLS needs it

    tls = client_context(ssl.SSLContext, root_ca_file=str(_ACCOUNT / "ca.crt"))
    place = f"[{host}]" if ":" in host else host
    return replace(client, tls=tls), parse_url(f"https://{place}:{port}/"), lambda: (_ACCOUNT / "token").read_text()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
