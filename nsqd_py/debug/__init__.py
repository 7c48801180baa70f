"""Looking into a running daemon; `nsqd_py.net.http.debug` has the paths under /debug.

stacks     the stacks of greenlets and threads
profile    a sampling profile: which functions use the processor
flame      draws a profile as a flame graph, or as folded lines             pure
census     counts objects by type
collector  counts and times garbage collections
memory     the memory of this process, under Go's names; frees unused memory
"""
