"""The segments of a log: files that are written at a known offset, and closed while they are not used.

log_file    one segment: append, read, preallocate, and its index
spare       the used segment whose space the next one takes
file_bytes  the bytes of a segment, read as they are needed
open_files  limits how many segments are open at a time

Threads
LazyFile._fd, _pin_count, _wants_close  threads pin a file before they use its descriptor; `OPEN_FILES.lock` guards each change,
    and only the event loop closes a file that is in use without a pin
OpenFiles._files, is_full, _is_asked  the event loop and threads that open files: `lock`
OpenFiles.most, _highest, _home, on_crowded  the event loop sets them when nsqd begins to serve, before threads open files
LogFile.end_offset, end_seq, missing_count, newest_ns, salt  threads read what the event loop counts after the bytes are in the
    file: each is one number, which rises
LogFile.allocated, was_cut  the thread that writes, and the event loop that checks for cut files: `allocated` rises after space
    is allocated, and falls before it is given back; `was_cut` is only ever set
LogFile._place  both set it, in one step, to a place where they have just seen the file under its name
LogFile.most_ahead, most_bytes, writes_zeros  the event loop sets them while no thread writes to the file
LogFile.path  the event loop replaces it in one step, by a name in the same directory
LogFile.index_offsets, _index_counts, _index_newest_ns, _index_seqs  threads search them while the event loop appends: each
    append is one step, that of the searched column comes last, and nothing is ever removed
LogFile.sync_error, synced_offset, synced_seq, _clean_offset, _allocated_when_closed  the event loop sets them when no thread
    syncs the file: a topic has one sync at a time
"""
