"""What the page and the history get of the cluster that `nsqd_py.cluster` observes.

recording   copies figures to the history after each round                    pure
last_known  the last states of nsqds, also of those that are gone             pure
view        the form of all views, and the figures in them                    pure
views       the JSON of the cluster, its topics and channels                  pure
node_views  the JSON of nsqds                                                 pure
"""
