"""nsq-tail: shows the messages of topics as they arrive.

options      the settings
program      its name, what it does, and examples
rendering    messages become the bytes to show; values of JSON bodies by paths; escaping for terminals   pure
output       standard output, written by a thread                                                        gevent
tailing      consuming, writing, finishing                                                               gevent
log_tailing  reading logs over HTTP, for --since and --last                                              gevent

Threads
Output._descriptor  one thread writes, one batch after the other
"""
