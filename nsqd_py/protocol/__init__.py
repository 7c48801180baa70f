"""The NSQ protocol V2 without I/O: bytes in, commands out; batches in, frames out.

nsqd's side
commands        the commands of clients, as classes
command_table   their arguments, states, errors, and the order of checks
parser          turns bytes in any chunks into commands
fin_run         recognises consecutive FINs
guarded_parser  the same for a client that needs permissions
multi_body      finds the messages of a large MPUB in slices
session         what a client negotiated, and its state
frames          responses, errors and messages as bytes

The client's side
outgoing        commands as bytes
incoming        turns bytes into messages, responses and errors

Both
names           valid names of topics and channels
fields          the JSON of IDENTIFY
wrong_port      error messages for a connection to the wrong port

Nothing here imports gevent, opens a file or reads a clock, so that any process can use it.
"""

# The first bytes of a connection: V1 to nsqlookupd, V2 to nsqd.
MAGIC_V1 = b"  V1"
MAGIC_V2 = b"  V2"
