"""The HTTP side of nsqadmin.

app              rules for all requests, and what all handlers use
server           gevent's WSGI server, with the listener and TLS of the other daemons
access           access rights: login, users and groups of a proxy, permissions, requests from other sites
answers          answers and errors in the form of Go's nsqadmin; request bodies
go_api           the paths of Go's nsqadmin
views_api        the data of the page, under /api/v2, and /metrics for Prometheus
events           server-sent events: changes of the data that a page shows
node_queries     requests of the page that nsqds answer
message_queries  messages of channels and of the logs of topics; dead letters
requeueing       moves dead letters to the topics that get them again
actions          the actions of the page, POST /api/v2/actions, and of Go's paths
shell            the page and its files
"""
