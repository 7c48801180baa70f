"""The state of the cluster, kept in memory.

poller     asks all nsqlookupds and nsqds, round after round
rows       finds what is new in an answer                                   pure
model      nodes, topics and channels over all nsqds                        pure
figures    figures of a topic or channel, and their sums                    pure
recording  copies figures to the history after each round                   pure
views      what the page gets, as JSON                                      pure
"""
