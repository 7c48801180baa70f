"""The topic log on disk: one append-only log per topic, and one journal per channel.

records     a batch as a record with a checksum                                          pure
messages    records whose messages have their own ids and times, for archives            pure
ranges      sets of sequence numbers as ranges, and the epochs of a log                  pure
waits       runs of waiting messages, packed as in a journal                             pure
journal     the journal of a channel: its encoding, and the file
log         the segments of one topic, in order of sequence numbers
files       one segment: append, read, preallocate, and its index
file_bytes  the bytes of a segment, read as they are needed
open_files  limits how many segments are open at a time
syncing     writes in steps, fsync of segments, and recovery from a failed fsync
reading     reads chunks of 1 MiB or single records, and searches by time
checking    checks records against their checksums, for scrubs and copies
recovery    reads segments at the start; damaged bytes and missing segments
compaction  decides which segments are worth their space, and copies the needed messages of a segment to a sparse one

Threads
Appending  owned by the event loop, by one thread, and by the event loop again. If its greenlet is killed, `TopicLog.leave` only
    reads `file`, and the thread's end releases it
CallTimer  one thread measures; the event loop reads it after the end of the job
LazyFile._fd, _pin_count, _wants_close  threads pin a file before they use its descriptor; `OPEN_FILES.lock` guards each change,
    and only the event loop closes a file that is in use without a pin
OpenFiles._files, is_full, _is_asked  the event loop and threads that open files: `lock`
OpenFiles.most, _highest, _home, on_crowded  the event loop sets them when nsqd begins to serve, before threads open files
LogFile.end_offset, end_seq, missing_count, newest_ns, salt  threads read what the event loop counts after the bytes are in the
    file: each is one number, which rises
LogFile.allocated, was_cut  the thread that writes, and the event loop that looks for cut files: `allocated` rises after space
    is allocated, and falls before it is given back; `was_cut` is only ever set
LogFile.most_ahead, most_bytes, writes_zeros  the event loop sets them while no thread writes to the file
LogFile.path  the event loop replaces it in one step, by a name in the same directory
LogFile.index_offsets, _index_counts, _index_newest_ns, _index_seqs  threads search them while the event loop appends: each
    append is one step, that of the searched column comes last, and nothing is ever removed
LogFile.sync_error, synced_offset, synced_seq, _clean_offset, _allocated_at_rest  the event loop sets them when no thread syncs
    the file: a topic has one sync at a time
Unsynced  owned by the event loop, by one thread that syncs, and by the event loop again
Journal  one writer at a time: the event loop waits with `JournalWriter.settle` before it writes itself. A sync in a thread sets
    `is_unsynced` to False before it begins, a write sets it to True after its end
LargeSnapshot  a thread sets `fd` and `size`; the event loop uses them after its end. `since` belongs to the writer of the
    journal, whose end `finish` waits for
Compaction  owned by the thread during a `step`, and by the event loop between two of them
TopicLog.files, directory  a thread uses them while nsqd closes the topic, when the event loop changes no log any more
"""
