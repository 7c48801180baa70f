"""nsqadmin: a console over all nsqd and nsqlookupd of a cluster.

daemon          the process
options         its settings
upstream        the client of requests to nsqd and nsqlookupd
permissions     the permissions of users and groups on topics                        pure
address_blocks  blocks of addresses: trusted proxies, hosts that may see a token     pure
refusals        refused requests, and the arguments of a query                       pure
clusterinfo     the requests and commands of Go's nsqadmin
go_json         answers in the JSON of Go's nsqadmin                                 pure
audit           logs each action, and posts it to --notification-http-endpoint
audit_trail     the latest actions, for the audit view                               pure
problem_webhook  POSTs problems that begin and end to --attention-http-endpoint
webhook         POSTs JSON documents to a URL of the options
cluster         what the page and the history get of the observed cluster
history         metrics of the past hour and day
messages        finds messages in the log of a topic
web             the HTTP side: Go's API, the API under /api/v2, events, the page
static          the page itself; a package or an image has it as `page` too, merged by contrib/page
"""
