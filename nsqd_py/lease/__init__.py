"""A lease in an existing system decides which of several nsqds is primary.

options  the settings of standbys and of the lease
store    what a lease is, its errors, and its URL
etcd     leases of etcd, whose answers are read strictly
keeper   takes a lease, renews it, and ends serving when it is lost
"""
