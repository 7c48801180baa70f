"""The logic of a producer without sockets and clocks, shared by all producers.

base        settings, and every way to publish
publish     one publish: its command, its result and its errors
dispatcher  assigns publishes to nsqds, and knows what each has not answered
"""
