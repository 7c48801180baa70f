"""The topic log on disk: one append-only log per topic, and one journal per channel.

records     a batch as a record with a checksum                                          pure
messages    records whose messages have their own ids and times, for archives            pure
ranges      sets of sequence numbers as ranges, and the epochs of a log                  pure
journal     the journal of a channel: its encoding, and the file
log         the segments of one topic, in order of sequence numbers
files       one segment: append, read, preallocate, and its index
open_files  limits how many segments are open at a time
syncing     writes in steps, fsync of segments, and recovery from a failed fsync
reading     reads chunks of 1 MiB or single records, and searches by time
checking    checks records against their checksums, for scrubs and copies
recovery    reads segments at the start; damaged bytes and missing segments
compaction  decides which segments are worth their space, and copies the needed messages of a segment to a sparse one
"""
