"""The topics and channels of one nsqd: created, deleted, loaded at the start, and maintained on disk.

broker            creates, finds and deletes topics and channels
services          what all parts use; the interfaces of nsqlookupds and standbys

Start and stop
startup           loads a data directory; rebuilds positions from journals
state_files       `nsqd.dat` (topics and channels), `nsqd.clock` (the steady clock), `nsqd.stop` (a clean stop)
topic_files       makes the log of a new topic; writes and closes each topic at the end
admission         drains: refuses new messages, delivers the rest, and ends; limits how many topics clients create

Writing
disk_io           writes the positions of channels 20 times a second; uses threads while the disk is slow
sync              fsync of logs: --sync-every and --sync-timeout

Space and health
housekeeping      deletes and compacts log files that are no longer needed
disk_limits       free space, free descriptors, write errors that last, and log files that another program removed or cut
mending           counts and repairs damage in the logs of a primary, also where a consumer meets it
scrub             reads all logs slowly, and checks and repairs what no consumer reads

Operations on one channel
channel_admin     shows messages without delivering them; moves a channel in its topic's log
"""
