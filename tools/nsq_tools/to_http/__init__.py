"""nsq-to-http: each message becomes an HTTP request, and is finished when it was answered with 2xx.

options    the settings
headers    the headers that are sent                                                pure
requests   what is asked of whom: addresses, headers, the bytes of a request        pure
answers    reading what came back                                                   pure
exchange   one request and its answer over a connection
sender     connections that stay open, time-outs, redirects
handler    what becomes of a message: sample, choose a host, send, try elsewhere, requeue
run        the tool
"""
