"""What a consumer decides, without sockets and clocks; the gevent consumer and the blocking one share it.

base          settings and figures of both consumers
subscription  a topic's channel over several nsqds
membership    one nsqd of a consumer, over all its connections
lane          what one nsqd is asked for, and what is in flight from it
flow          how many messages to ask for
rdy           shares max_in_flight out
backoff       pauses while handlers fail
touching      when unanswered messages are touched
handling      what becomes of a message in a handler
log           the logger that a consumer uses

On gevent
link          keeps one nsqd connected
finder        asks one nsqlookupd
workers       the greenlets that run handlers
"""
