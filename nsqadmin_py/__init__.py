"""nsqadmin: a console over all nsqd and nsqlookupd of a cluster.

daemon          the process
options         its settings
upstream        HTTP requests to nsqd and nsqlookupd
answer_budget   limits the memory that received answers take
address_blocks  blocks of addresses in CIDR notation                          pure
clusterinfo     the questions and commands of Go's nsqadmin
go_json         answers in the JSON of Go's nsqadmin                          pure
dead_letters    publishes dead letters again
audit           logs each action, and posts it to --notification-http-endpoint
cluster         the current state of the cluster, which a poller updates
history         figures of the past hour and day
web             the HTTP side: Go's API, the API under /api/v2, events, the page
static          the page itself
"""
