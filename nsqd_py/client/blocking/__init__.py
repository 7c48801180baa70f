"""The blocking clients: a thread does the input and output of each. `nsqd_py.client.gevent` runs them on greenlets.

producer           the `Producer`, which threads share
consumer           the `Consumer`, with handlers in threads, or a loop
publishing_core    the non-blocking core of all producers, and the `NonBlockingProducer` without a thread
nsqd_subscription  one nsqd of a consumer
connection         a connection on a blocking socket
lookup             asks nsqlookupds
backend            the primitives: threads, locks, sockets, and what waits for them
"""
