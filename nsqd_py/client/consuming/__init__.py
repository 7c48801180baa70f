"""What a consumer decides, without sockets and clocks; the gevent one and the blocking one share it.

subscription   a topic's channel over several nsqds: what both shells carry bytes to and from
lane           one nsqd's part in it
flow           how much is asked for: `rdy` shares it out, `backoff` holds it back
touching       when unanswered messages are touched
handling       what becomes of a message in a handler
base           arguments and properties of both consumers

link, finder, workers are the greenlets of the consumer on gevent.
"""
