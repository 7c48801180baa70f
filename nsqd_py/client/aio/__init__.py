"""The client for asyncio: the same names, options and errors, with methods to await.

    from nsqd_py.client.aio import Consumer, Producer

producer    the `Producer`
consumer    the `Consumer`, with coroutines as handlers, or `async for`
handler_threads  threads for handlers that are plain functions

The event loop does the input and output of a producer. A consumer runs the threaded one in addition to the loop, which
gets all that came together at once: so a busy event loop loses no messages, and whatever the loop does, heartbeats are
answered.

Threads
HandlerThreads  the event loop starts threads and adds calls to a `WorkQueue`; a thread takes a call, and reports its
    outcome to the loop with `call_soon_threadsafe`
TaskQueue._items  tasks, and `clear` in the I/O thread: who finds it emptied by the other one waits again
Consumer  the event loop and the I/O thread of the blocking consumer, which calls the loop with `call_soon_threadsafe`; a loop
    that was left ends in the thread that collects it, with calls of the blocking consumer that any thread may make
"""

from __future__ import annotations

from nsqd_py.client.aio.consumer import Consumer
from nsqd_py.client.aio.producer import Producer, connect

__all__ = ["Consumer", "Producer", "connect"]
