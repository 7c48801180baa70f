"""The logic of a consumer without sockets and clocks, shared by all consumers.

base          settings and figures of all consumers
subscription  a channel as one consumer has it, over several nsqds
membership    one nsqd of a consumer, over all its connections
lane          one nsqd's messages in flight, their touches and answers
flow          how many messages to request: RDY and back-off
handling      calls handlers, and answers their messages
"""
