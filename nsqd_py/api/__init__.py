"""nsqd's HTTP paths: publishing, administration, figures, and reading the log.

routes            the table of paths: method, access rule, handler
handlers          one function for each path
channel_handlers  the path that shows the next messages of a channel
log_handlers      the paths that read a topic's log by sequence number
publishing        a connection on which plain publishes take a short way
known_heads       request heads that this connection has parsed before      pure
bodies            the two body formats of /mpub become batches              pure
"""
