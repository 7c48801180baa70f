"""The blocking clients: a thread does the input and output of each. `nsqd_py.client.gevent` runs them on greenlets.

producer           the `Producer`, which threads share
consumer           the `Consumer`, with handlers in threads, or a loop
publishing_core    the non-blocking core of all producers, and the `NonBlockingProducer` without a thread
consuming_core     the non-blocking core of all consumers, and the `NonBlockingConsumer` without a thread
nsqd_subscription  one nsqd of a consumer
connection         a connection on a blocking socket
lookup             asks nsqlookupds
http_requests      requests to nsqlookupds and nsqds over HTTP
backend            the primitives: threads, locks, sockets, and what waits for them

An event loop of another library, or a transport of another client, uses `NonBlockingProducer` and `NonBlockingConsumer`. They are
internal, but their names and methods stay. The loop owns the time and the waiting:

    consumer = NonBlockingConsumer("topic", "channel", nsqd_tcp_addresses="127.0.0.1:4150", max_in_flight=100)
    while True:
        wait_for_input(consumer.watched, consumer.wait_s)  # a round of the loop, which may serve other consumers too
        batches = consumer.step(0)
        if batches is None:
            break  # `consumer.begin_to_stop(timeout_s)` was called, and everything is answered and closed
        for batch in batches:
            for message in batch.messages():
                handle(message)  # calls its `finish`, `requeue` or `touch`, at once or in a later round

Short-lived threads connect, and ask nsqlookupds. A subclass of the consumer whose `_make_backend` is a `Backend` that makes the
calls in `spawn` has no threads, and waits for these calls. One thread at a time calls `step`; any thread may answer, and stop.

Threads
Poller  any thread calls `wake`, which shares a lock with `close`; the rest belongs to one thread
WorkerThread  the worker sets its result and then `is_done`; the owner reads the result after that. `kill` sets `_is_killed`
    before it reads `is_done`, the worker reads it after: one of the two drops the result
Waiters._locks  any thread: each change is one call of a list; who is not woken polls again, see `wait`
Latch.is_set  set once, before its waiters are woken
WorkQueue._items, _is_closed  any thread: each change is one call of a deque, and an empty one is an IndexError that is handled
Producer  callers and the I/O thread: one call of the interpreter changes each state, in the order that its module describes
PublishingCore  the I/O thread; others read counts and copies of its dictionaries, set `held`, and wake its poller. With
    asyncio, the event loop, and a thread that closes it after the loop has let go of it
Connection  the thread that opens it, and then the I/O thread, which gets it through `WorkerThread.is_done`
Consumer  the I/O thread; what others change too (subscriptions, windows) has the lock, `_workers` is copied in one step; a
    consumer begins again only after its I/O thread has set `_stopped`, its last step
ConsumingCore  the I/O thread, or the one that calls `step`; others set `_stop_by_s` under the lock, copy `_nsqds` in one step,
    and wake the poller
NsqdSubscription  the I/O thread; `leave`, and its window, under the lock of the consumer
Finder  the I/O thread; a worker has the address and the options
"""
