"""nsqadmin: a console over all nsqd and nsqlookupd of a cluster.

options, daemon           the process
upstream, clusterinfo     questions and orders to nsqd and nsqlookupd; `shapes` is what Go's nsqadmin makes of answers
cluster                   what is known of the cluster now, kept up to date by a poller
history                   what was, in rings of numbers and in a file
web                       the HTTP side: Go's API, our API under /api/v2, events, the page; who may do what
"""
