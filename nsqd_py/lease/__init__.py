"""A lease in an existing system decides which of two nsqds is primary.

store        the interface of a lease store, its errors, and the URLs of leases
stores       the store that a URL names
members      the addresses of one store, asked in turn
etcd         leases of etcd
consul       sessions of Consul
kubernetes   Lease objects of Kubernetes
keeper       takes a lease, renews it, and says when it is lost
"""
