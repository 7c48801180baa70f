"""nsq-to-http: sends each message in an HTTP request.

options   the settings
program   its name, what it does, and examples
requests  addresses, headers, redirects                            pure
sender    persistent connections, time-outs                        gevent
run       one message: sample, choose a host, send, retry, requeue
"""
