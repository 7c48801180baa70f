"""nsq-to-http: sends each message in an HTTP request, and finishes it after a 2xx response.

options    the settings
requests   requests: addresses, headers, bytes                                  pure
answers    the parser of responses                                              pure
sender     persistent connections, time-outs, redirects
handler    one message: sample, choose a host, send, try another host, requeue
run        the tool
"""
