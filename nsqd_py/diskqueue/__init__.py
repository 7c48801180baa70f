"""The topic log: one append-only log a topic, a position a channel.

records   a batch as bytes in a file, with its checksum                 pure
ranges    which sequence numbers a channel is done with                 pure
journal   how a channel's position is kept on disk                      (codec pure)
files     one log file: append, read, preallocate
log       the files of one topic: append, read by sequence number, drop what nobody needs
recovery  what is found on disk at the start
"""
