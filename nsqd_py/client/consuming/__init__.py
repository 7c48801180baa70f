"""The logic of a consumer without sockets and clocks, shared by all consumers.

base          settings and statistics of all consumers
subscription  a channel as one consumer has it, over several nsqds
in_flight     one nsqd's messages in flight, their touches and answers
flow          how many messages to request: RDY and back-off
handling      calls handlers, and answers their messages
"""
