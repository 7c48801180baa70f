"""The client of nsqds and nsqlookupds over HTTP; and the observer of a cluster, for nsqadmin and nsq-stat: what all of them
report, and rates.

admin_client   requests to nsqd and nsqlookupd, and their errors, over the backend of a program
upstream       the admin client on gevent: requests in parallel, and the memory that answers take
access         the admin client on threads, for Spark and nsq-to-file: who may see its login or token
poller         asks all nsqlookupds and nsqds, round after round
questions      what is asked of one server again and again, and whether it is late
model          nodes, topics and channels over all nsqds                      pure
roles          primaries and standbys, and how far these are behind    pure
stores         stores in buckets, and how far they are behind                 pure
counts         the counts of a topic or channel, and their rates              pure
statistics     statistics of a topic or channel, and their sums               pure
problems       what is wrong in the cluster: kinds, limits, trends                  pure
producers      what nsqlookupds and nsqds report about nsqds                  pure
values         values of any JSON that another program sent                   pure
"""
