"""The topic log on disk: one append-only log a topic, and a journal a channel.

Formats
records            a batch as a record with a checksum                        pure
messages           records in which each message has its own id and times    pure
journal            the journal of a channel: its codec, and the file
ranges             sets of sequence numbers as ranges                         pure

The log
log                the files of one topic, in order of sequence numbers
files              one log file: append, read, preallocate
appending          a write in steps, which a thread can finish
file_index         positions in a file, found by number or time               pure
open_files         the log files that are open, and how many may be
descriptor_relief  what happens when no more files can be opened
call_timing        how long system calls take
disk_pace          whether the event loop may use the disk, or threads must

Reading
chunks             reads of about 1 MiB, shared by channels at the same place
walking            goes from record to record through a file
places             reads a single record
kept               records by sequence number, for readers that are no channel
timeline           finds the first message of a time
memory_budget      the bytes of messages that may be held in memory

Syncing
syncing            fsync of log files, and what follows a failed one
sync_book          what waits for an fsync, and what a failed one left

Recovery
recovery           reads the files at the start
salvage            rebuilds a damaged file header from the records
damage             sets unreadable bytes aside, and reports them once
missing            messages that were needed, but are in no file

Space
space              which files are worth their space                          pure
compaction         copies the needed messages of a file to a sparse one

Go's nsqd
go_files           the format of Go's disk queues                             pure
go_queue           reads one of them
"""
