"""Queues in the order of time: messages in flight, deferred messages, and alarms. No module here does I/O; time is an argument.

in_flight  the messages that one client has, and when they time out
deferred   runs of messages, ordered by the time at which they are due
alarms     one alarm for everything that has a deadline; one timer serves them all
"""
