"""What the page and the history get of the cluster that `nsqd_py.cluster` observes.

recording   copies figures to the history after each round                    pure
last_known  the last states of nsqds, also of those that are gone             pure
trends      how the backlogs of channels develop                              pure
problems    what is wrong in the cluster now                                  pure
attention   the list of problems, since when, and what to do                  pure
findings    all that nsqadmin concludes from the rounds                       pure
view        the form of all views, and the figures in them                    pure
views       the JSON of the cluster, its topics and channels                  pure
channel_views  the JSON of a list of all channels                             pure
visible     the cluster of a user who may not view all topics         pure
node_views  the JSON of nsqds                                                 pure
standby_views  the JSON of primaries and standbys                             pure
"""
