"""The topics and channels that exist: made, deleted, loaded at the start, and kept in order on disk.

broker            creates, finds and deletes topics and channels
discovery         the listeners that are told of it, such as nsqlookupd's peers
channel_making    writes the journal of a new channel, in a thread
log_making        builds the log of a topic

Start and stop
startup           loads a data directory
restoring         rebuilds a channel's position from its journal
clean_stop        the record of a clean stop, which the next start checks
clock_file        `nsqd.clock`: the steady clock on disk
clock_keeping     keeps the steady clock right over restarts and steps of the wall clock
drain             stops taking messages, delivers the rest, and ends

Writing
metadata          `nsqd.dat` as JSON
metadata_writing  writes `nsqd.dat` soon after a change
journal_writing   writes the positions of channels 20 times a second
sync              fsync of logs: --sync-every and --sync-timeout
slow_writing      writes in threads while the disk is slow
slow_reading      reads in threads while the disk is slow

Space and health
housekeeping      deletes what is no longer needed
compactor         chooses the log files to delete or to compact
removed_files     notices log files that another program removed
free_space        measures the free space of the disk
disk_health       the write errors that /ping, /health and /stats report

Operations on one channel
peek              shows the next messages without delivering them
seek              moves a channel in its topic's log
"""
