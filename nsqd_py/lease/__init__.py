"""A lease in an existing system decides which of several nsqds is primary.

options     the settings of the lease, and their check
store       what a lease is, its errors, and its URL
answers     the answers of etcd, read strictly                          pure
etcd        leases of etcd
bucket      leases in buckets of S3, Google Cloud Storage and Azure
document    the object that is a lease in a bucket                      pure
succession  the time from which no earlier holder of a lease serves     pure
keeper      takes a lease, renews it, and ends serving when it is lost
"""
