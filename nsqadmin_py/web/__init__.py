"""The HTTP side of nsqadmin.

app        the table of paths, and what holds for all requests
server     gevent's WSGI server, with the listener and TLS of the other daemons
access     access: login, users of a proxy, requests from other sites
proxies    which proxies may name the user                                  pure
bodies     reads request bodies, with limits on time and size
answers    answers and errors in the form of Go's nsqadmin
go_api     the paths of Go's nsqadmin
views_api  what the page reads, under /api/v2
events     server-sent events: changes of what the page shows
looks      what the page asks of one nsqd
actions    what the page does: POST /api/v2/actions
graphite   /render, with --proxy-graphite
shell      the page and its files
"""
