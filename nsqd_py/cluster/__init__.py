"""The observer of a cluster, for nsqadmin and nsq-stat: what all nsqlookupds and nsqds report, and rates.

poller         asks all nsqlookupds and nsqds, round after round
upstream       HTTP requests to nsqd and nsqlookupd, and the memory that answers take
model          nodes, topics and channels over all nsqds                      pure
roles          primaries and standbys, and how far these are behind    pure
counts         the counts of a topic or channel, and their rates              pure
statistics     statistics of a topic or channel, and their sums               pure
problems       what is wrong in the cluster: kinds, limits, trends                  pure
producers      what nsqlookupds and nsqds report about nsqds                  pure
values         values of any JSON that another program sent                   pure
"""
