"""nsqadmin: a console over all nsqd and nsqlookupd of a cluster.

daemon        the process
options       its settings
upstream      HTTP requests to nsqd and nsqlookupd
answer_budget  bounds the memory of all answers under way
clusterinfo   the questions and orders of Go's nsqadmin
shapes        answers in the JSON of Go's nsqadmin                          pure
dead_letters  publishes dead letters again
audit_log       logs each action, and posts it to --notification-http-endpoint
cluster       the state of the cluster now, kept current by a poller
history       figures of the past hour and day
web           the HTTP side: Go's API, the API under /api/v2, events, the page
static        the page itself
"""
