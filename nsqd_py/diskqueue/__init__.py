"""The topic log on disk: one append-only log per topic, and one journal per channel.

records        a batch as a record with a checksum                                          pure
messages       records whose messages have their own ids and times, for archives            pure
journals       the journals of channels
files          the segments of a log
log            the segments of one topic, in order of sequence numbers
memory_budget  the limit on the bytes of messages that one nsqd holds in memory             pure
syncing        writes in steps, fsync of segments, and recovery from a failed fsync
reading        reads chunks of 1 MiB or single records, and searches by time
history        reads the stored files of a log, where it goes on beyond the disk
checking       checks records against their checksums, for scrubs and copies
recovery       reads segments at the start
damage         damaged bytes, which are copied aside, and missing segments
compaction     decides which segments are worth their space, and copies the needed messages of a segment to a sparse one

Threads
Appending  owned by the event loop, by one thread, and by the event loop again. If its greenlet is killed, `TopicLog.leave` only
    reads `file`, and the thread's end releases it
CallTimer  one thread measures; the event loop reads it after the end of the job
Unsynced  owned by the event loop, by one thread that syncs, and by the event loop again
Compaction  owned by the thread during a `step`, and by the event loop between two of them
HistoryFile  threads share it: what it remembers, they add in one step of the interpreter, and finding it twice is the same
TopicLog.files, directory  a thread uses them while nsqd closes the topic, when the event loop changes no log any more
"""
