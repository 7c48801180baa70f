"""Looking into a running daemon; `nsqd_py.net.http.debug` has the paths under /debug.

stacks  the stacks of greenlets and threads, and a sampling profile: which functions use the processor
memory  the memory of this process under Go's names, pauses of the garbage collector; frees unused memory
"""
