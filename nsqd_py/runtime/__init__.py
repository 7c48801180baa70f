"""The process of a daemon or tool.

logs, log_sink    log lines: levels, forms, limits on lines that clients cause; writing without blocking
hidden            passwords and tokens, hidden in texts
outages           back-off between attempts, and the log lines of an outage
streams           standard streams that are closed, full or without a reader
early_signals     signals held back until the program can handle them
process           limits, memory, collector, stop signals
systemd           notifications and inherited sockets
threads           blocking work in threads
greenlets         greenlets that are used again
disk_pace         measures system calls; decides if the event loop may use the disk
pacing            long work in slices; how late the event loop is
histogram         counts of values between bounds
private_files     files that only their owner can read, and that are no links
documents         checks of documents that somebody else may have written
"""
