"""The NSQ protocol V2 without I/O: bytes in, commands out; batches in, frames out.

nsqd's side
commands        the commands of clients, as classes, and the table of their arguments, states, errors and order of checks
parser          turns bytes in any chunks into commands; asks for permissions where a client needs them
multi_body      finds the messages of a large MPUB in slices
session         what a client negotiated with the JSON of IDENTIFY, and its state
frames          responses, errors and messages as bytes

The client's side
outgoing        commands as bytes
incoming        turns bytes into messages, responses and errors

Both
batch           messages as they were published, in one piece of memory
message_ids     the ids of messages, and what generates them
names           valid names of topics and channels, and of topics of dead letters
envelope        headers around a body
wrong_port      error messages for a connection to the wrong port

Nothing here imports gevent, opens a file or reads a clock, so that any process can use it.
"""

# The first bytes of a connection: V1 to nsqlookupd, V2 to nsqd.
MAGIC_V1 = b"  V1"
MAGIC_V2 = b"  V2"
