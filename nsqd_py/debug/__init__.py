"""Inspection of a running daemon; `nsqd_py.net.http.debug` has the paths under /debug.

stacks  the stacks of greenlets and threads, and a sampling profile: which functions use the processor
memory  the memory of this process under Go's names, pauses of the garbage collector; frees unused memory

Threads
Pauses.total_ns, last_ns, _started_ns  the collector calls back in any thread, one collection at a time; readers copy the deque
    in one step
Profiler._counts  a signal handler in the main thread, between two steps of the profile's greenlet
"""
