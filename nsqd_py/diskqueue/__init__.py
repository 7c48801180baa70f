"""The topic log on disk: one append-only log per topic, and one journal per channel.

Formats
records         a batch as a record with a checksum                         pure
messages        records whose messages have their own ids and times         pure
journal         the journal of a channel: its encoding, and the file
go_files        the format of the disk queues of Go's nsqd                  pure

The log
log             the segments of one topic, in order of sequence numbers
epochs          tells a log from another one with the same numbers    pure
file_list       the segments in order; finds one by number
files           one segment: append, read, preallocate
file_index      finds a record in a segment by number or time
open_files      limits how many segments are open at a time
ranges          sets of sequence numbers as ranges                          pure

Reading
reading         reads chunks of 1 MiB or single records, and searches by time
kept            reads records by sequence number, for readers that are no channel
memory_budget   limits the bytes of messages that are held in memory

The disk
syncing         writes in steps, fsync of segments, and recovery from a failed fsync

Recovery
recovery        reads segments at the start, and rebuilds a damaged file header
damage          copies unreadable bytes to another file; finds missing segments

Space
space           decides which segments are worth their space                pure
compaction      copies the needed messages of a segment to a sparse one
"""
