"""The views that the page and the history get of the cluster which `nsqd_py.cluster` observes.

Everything here is pure.

metrics     metrics of topics, channels and nsqds, roles of nsqds, and the form of a view
last_known  the last states of nsqds, also of those that are gone
attention   the list of problems, since when, and what to do
reports     the problems that a receiver must get, once when they begin and once when they end
findings    all that nsqadmin concludes from the rounds; the cluster of a user who may not view all topics
node_views  the JSON of nsqds
views       the JSON of the cluster, its topics and channels
"""
