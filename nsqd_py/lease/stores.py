"""The store of leases that a URL names."""

from __future__ import annotations

from nsqd_py.lease.consul import ConsulStore
from nsqd_py.lease.etcd import EtcdStore
from nsqd_py.lease.kubernetes import KubernetesStore, in_cluster
from nsqd_py.lease.store import LeaseStore, LeaseUrl
from nsqd_py.net.http.client import HttpClient

# A lease must be renewed before it ends, also when one request fails. Consul accepts no less than its own least.
LEAST_TTL_S = 2
LEAST_CONSUL_TTL_S = 10


def open_store(url: LeaseUrl, ttl_s: int, client: HttpClient) -> LeaseStore:
    """Return the store of a lease that lives for `ttl_s` seconds. Raises ValueError if the store has no such lease."""
    least_s = LEAST_CONSUL_TTL_S if url.kind == "consul" else LEAST_TTL_S
    if ttl_s < least_s:
        raise ValueError(f"a lease of {url.kind} lives at least {least_s} seconds, got {ttl_s}")
    if url.kind == "etcd":
        return EtcdStore(url, ttl_s, client)
    if url.kind == "consul":
        return ConsulStore(url, ttl_s, client)
    return KubernetesStore(url, ttl_s, *in_cluster(client))
