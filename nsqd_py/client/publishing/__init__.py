"""The logic of a producer without sockets and clocks, shared by all producers.

base        settings, and every way to publish
publish     one publish: its command, its result and its errors
writer      one nsqd: what it has not answered; and publishes that wait for a connection
dispatcher  assigns publishes to nsqds
"""
