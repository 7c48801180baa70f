"""What a producer decides, without sockets and clocks; the gevent producer and the blocking one share it.

base        settings, and every way to publish
publish     one publish, and its result
waiting     publishes that no connection has
outlet      one nsqd, as a producer sees it
window      what one connection was sent and has not answered
dispatcher  which publish goes to which nsqd
verdict     what an error answer means
failures    errors of publishes
"""
