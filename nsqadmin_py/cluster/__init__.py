"""The state of the cluster, kept in memory.

poller        asks all nsqlookupds and nsqds, round after round
stats_reader  finds the topics that changed in an answer                      pure
model         nodes, topics and channels over all nsqds                       pure
figures       figures of a topic or channel, and their sums                   pure
recording     copies figures to the history after each round                  pure
views         the JSON that the page gets                                     pure
"""
