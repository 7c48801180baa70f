"""The feed: everything that is new in a data path, for a reader that keeps a copy of it elsewhere.

feed    what is new, in rounds, in an order that is safe wherever the reader stops
lag     how far the reader is behind                           pure
pieces  the pieces of a round, and what a reader has already   pure
codec   the pieces as bytes                                    pure

The sender to a standby or a backup (`nsqd_py.standby.stream`) is such a reader.

Threads
Feed  a thread reads a pinned log file; the greenlet waits, also if it is killed
"""
