"""nsqd in Python: a message queue daemon that speaks the NSQ protocol byte for byte. Publishers send their
messages to a *topic*; each *channel* of the topic gets all of them, and shares them out among its consumers.
What was acknowledged is in a log on disk and survives a crash. The core (protocol, batches, delivery) knows
no sockets, files or clocks; the shell around it does the input and output on gevent and decides nothing.
"""
