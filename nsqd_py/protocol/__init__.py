"""The NSQ protocol V2 with no I/O in it: bytes in, commands out; batches in, frames out.

names     which names are valid, how errors quote bad ones
commands  the table of commands: what each needs, when it may come, which errors it gives
parser    bytes in any chunking become commands
session   what a client negotiated and the state that it is in
frames    responses, errors and messages as bytes

Nothing here imports gevent, opens a file or reads a clock, so that any process can use it.
"""

# The first bytes of a connection: V1 to nsqlookupd, V2 to nsqd.
MAGIC_V1 = b"  V1"
MAGIC_V2 = b"  V2"
