"""nsqd's HTTP paths: publishing, administration, statistics, and reading the log.

routes        the table of paths: method, access rule, handler
handlers      the handlers of most paths; the two body formats of /mpub
log_handlers  the handlers that read a topic's log, seek, peek, or finish one message
publishing    an HTTP connection that publishes to /pub without parsing
"""
