"""The logic of a consumer without sockets, shared by all consumers.

base          settings, calls of handlers, and statistics of all consumers
subscription  a channel as one consumer has it, and the messages in flight from each nsqd
flow          how many messages to request: RDY and back-off
"""
