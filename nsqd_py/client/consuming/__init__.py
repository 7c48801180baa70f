"""The logic of a consumer without sockets, shared by all consumers.

base          settings, calls of handlers, and statistics of all consumers
subscription  a channel as one consumer has it: the in-flight window of each nsqd, RDY and back-off
flow          how long to back off, and how to share RDY among the connections
"""
