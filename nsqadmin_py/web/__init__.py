"""The HTTP side of nsqadmin.

app, server      requests to handlers, and the server below
safety           who may do what: login, ACL, requests from other sites, tokens
go_api           the paths of Go's nsqadmin
views_api        what the page reads: /api/v2, from memory; `events` tells changes
actions          what the page does: POST /api/v2/actions; `looks` asks one nsqd for what the poller does not
shell            the page itself and its files
"""
