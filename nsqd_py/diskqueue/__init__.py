"""The topic log: one append-only log a topic, a position a channel.

records   a batch as bytes in a file, with its checksum                 pure
ranges    which sequence numbers a channel is done with                 pure
journal   how a channel's position is kept on disk                      (codec pure)
files     one log file: append, read, preallocate; file_index: places in it (pure)
log       the files of one topic: append, read by sequence number, drop what nobody needs
chunks    how it is read; damage: what cannot be; timeline: from a time to a number
recovery  what is found on disk at the start
space     which files are worth their space                             pure
compaction  what is alive of a file moves to a sparse one
kept      records by number, for those who are no channel
"""
