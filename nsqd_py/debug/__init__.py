"""Looking into a running daemon; `nsqd_py.net.http.debug` has the paths under /debug.

stacks          what each greenlet and thread executes now
profile         a sampling profile: which functions use the processor
flame           a profile as a flame graph, or as folded lines               pure
census          which types use the memory
collector       what the garbage collector did, and how long it took
process_memory  the memory of this process, under Go's names
memory          returns unused memory to the system
"""
