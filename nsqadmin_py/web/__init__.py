"""The HTTP side of nsqadmin.

app              the table of paths, and rules for all requests
server           gevent's WSGI server, with the listener and TLS of the other daemons
access           access rights: login, users and groups of a proxy, permissions on topics, requests from other sites
bodies           reads request bodies, with limits on time and size
answers          answers and errors in the form of Go's nsqadmin
go_api           the paths of Go's nsqadmin
views_api        the data of the page, under /api/v2
csv_rows         rows of a list as CSV
events           server-sent events: changes of the data that a page shows
node_queries     questions of the page that nsqds answer
message_queries  messages of channels, and of the logs of topics
node_details  the clients of an nsqd, and what is compared of several nsqds
actions          the actions of the page: POST /api/v2/actions
letter_actions   actions on one waiting message
letter_queries   the list of dead letters
metrics          /metrics for Prometheus
graphite         /render, with --proxy-graphite
shell            the page and its files
bundle           one script of all modules of the page
"""
