"""The process of a daemon or tool.

command        the frame of every command: signals that come early, standard streams that are closed or full
process        limits, memory, collector, stop signals
systemd        notifications and inherited sockets
logs           log lines, secrets in them, and what an outage or a bug writes
iteration_end  the interface of the event loop: what is done at the end of an iteration, and for whom
threads        blocking work in threads; greenlets that are reused
disk_speed     measures system calls; decides if the event loop may use the disk
pacing         long work in slices; how late the event loop is
private_files  files and directories that only their owner can read, and that are no links; locks; files of others
one_bit        corrects a flipped bit by a checksum
documents      checks of documents, JSON and compressed files that others may have written

Threads
DiskThreads._ended, _watcher  threads of the disk put ended jobs and wake the event loop, which takes them: a queue of the
    standard library, and a watcher of libev, which any thread may wake
_Thread.mailbox  the event loop puts one job at a time, one thread takes it: a queue of the standard library
Job  owned by the event loop, by one thread, and by the event loop again: handed over through a mailbox and `_ended`
"""
