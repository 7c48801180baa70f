"""The topics and channels of one nsqd: created, deleted, loaded at the start, and maintained on disk.

broker            creates, finds and deletes topics and channels
services          what all parts use; the interfaces of nsqlookupds and of readers; the role in a group

Start and stop
startup           loads a data directory; rebuilds positions from journals
state_files       `nsqd.dat` (topics and channels), `nsqd.clock` (the steady clock), `nsqd.stop` (a clean stop)
losses            what a start has found missing, and logs whose ends may be
topic_files       makes the log of a new topic, and has the epochs; writes and closes each topic at the end
admission         drains: refuses new messages, delivers the rest, and ends; limits how many topics clients create

Writing
disk_io           writes the positions of channels 20 times a second; uses threads while the disk is slow
sync              fsync of logs: --sync-every and --sync-timeout
answer_gate       publishers whose answers wait until enough copies have their messages     pure

Space and health
upkeep            files that are not needed, space, damage: found, deleted, repaired

Operations on one channel
channel_admin     shows messages without delivering them; moves a channel in its topic's log

Threads
GroupSync._running  threads replace the value of a topic, which the event loop alone adds and removes: it stays until their job
    has ended, so the size never changes while the event loop iterates
GroupSync._together  a thread reads what the greenlet filled, which then waits for it
JournalWriter  its threads have `JournalChange`s and `LargeSnapshot`s only
Peek.rows, ids, unreadable_count, _plan  a thread fills them while the greenlet of the request waits
MetadataWriter  a thread writes what the greenlet encoded, which waits under `_lock`: no other thread writes `nsqd.dat`
ClockKeeper  one thread at a time writes `nsqd.clock`; the next write, and `close`, wait for its end
LogMaker  threads remove and close files that their logs have let go of, and whose names no other file has
_Closing  owned by the event loop, by one thread (`sync`), and by the event loop again
"""
