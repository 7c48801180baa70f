"""The process of a daemon or tool.

command        the frame of every command: signals that come early, standard streams that are closed or full
process        limits, memory, collector, stop signals
systemd        notifications and inherited sockets
logs           log lines: levels, forms, limits on lines that clients cause; writing without blocking
bugs           log lines about bugs, whose number clients get
hidden         passwords and tokens, hidden in texts
outages        back-off between attempts, and the log lines of an outage
threads        blocking work in threads; greenlets that are reused
disk_speed      measures system calls; decides if the event loop may use the disk
pacing         long work in slices; how late the event loop is
private_files  files that only their owner can read, and that are no links
documents      checks of documents, JSON and compressed files that others may have written

Threads
DiskThreads._ended, _watcher  threads of the disk put ended jobs and wake the event loop, which takes them: a queue of the
    standard library, and a watcher of libev, which any thread may wake
_Thread.mailbox  the event loop puts one job at a time, one thread takes it: a queue of the standard library
Job  owned by the event loop, by one thread, and by the event loop again: handed over through a mailbox and `_ended`
Log  any thread of nsq-to-file, and those of the disk for errors: only its `LineSink` changes; no thread uses `of_clients`, and
    a log whose lines are gathered (nsqlookupd's) has no threads
LineSink._waiting, _waiting_bytes, lost_count, _is_slow  threads that log, and the one that writes what waits: a lock, which
    that thread leaves only for the write itself
"""
