"""Log lines.

lines       the interface of a log, for rooms that write lines
daemon_log  levels, forms, limits on lines that clients cause; writing without blocking
bugs        lines about bugs, whose number clients get
outages     back-off between attempts, and the lines of an outage
hidden      passwords and tokens, hidden in texts

Threads
Log  any thread of nsq-to-file, and those of the disk for errors: only its `LineSink` changes; no thread uses `of_clients`, and
    a log whose lines are gathered (nsqlookupd's) has no threads
LineSink._waiting, _waiting_bytes, lost_count, _is_slow  threads that log, and the one that writes what waits: a lock, which
    that thread leaves only for the write itself
"""
