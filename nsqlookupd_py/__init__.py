"""nsqlookupd: which nsqd has which topics and channels.

The daemons register themselves over TCP, consumers and tools ask over HTTP. `registry` knows who has what and
does no I/O; `parser` and `commands` are the TCP protocol, `http` the other one, and `daemon` the process.
"""
