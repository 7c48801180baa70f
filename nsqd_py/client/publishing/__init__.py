"""The logic of a producer without sockets and clocks, shared by all producers.

base        settings, and every way to publish
publish     one publish: its command, its result and its errors
dispatcher  assigns publishes to nsqds, and knows what each has not answered

Threads
PendingPublish  the caller makes it; the I/O thread sets `error` and then `state`, which any thread may read
Failures  the I/O thread adds; who reads takes the count first, so that a failure in between is reported the next time
Dispatcher  the I/O thread; others read counts, and copy its dictionaries in one step
"""
