"""The problems of a cluster, for nsqadmin's page and metrics and for `nsq-stat --check`: one module decides. Pure.

kinds        the kinds of problems: how bad each is, and what to do
limits       from which age and lag on something is a problem
memory       the last known state of each nsqd, also of those that are gone
lasting      leaves out problems that may be over in a moment
states       ok, slow, failed: the state of an nsqd
trends       how the backlog of each channel develops
finding      all problems of a cluster, as of one round
of_nodes     those of nsqlookupds and nsqds
of_standbys  those of primaries, standbys and their leases
of_stores    those of stores
of_channels  those of topics and channels
words        numbers, rates and times in sentences
"""
