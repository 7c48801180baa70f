"""A lease in an existing system decides which of several nsqds is primary.

store   the interface of a lease store, its errors, and the URL of a lease
etcd    leases of etcd, whose answers are read strictly
keeper  takes a lease, renews it, and ends serving when it is lost
"""
