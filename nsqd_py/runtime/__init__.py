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
"""
