"""The logic of a consumer without sockets, shared by all consumers.

base          settings, calls of handlers, and statistics of all consumers
subscription  a channel as one consumer has it: the in-flight window of each nsqd, RDY and back-off
flow          how long to back off, and how to share RDY among the connections

Threads
Subscription  those who answer messages and the I/O thread: `lock`, except for reads of `reports_success`, which may be late
InFlightWindow._fins, has_output  threads that finish a message append without the lock; the I/O thread takes a copy, and
    removes as many
InFlightWindow._batches, _commands, _taken_fins  under the lock
"""
