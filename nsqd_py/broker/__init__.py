"""The topics and channels of one nsqd: created, deleted, loaded at the start, and maintained on disk.

broker            creates, finds and deletes topics and channels
services          what all parts use; the interfaces of nsqlookupds, stores and readers
additions         what parts of nsqd add: the role in a group, notices, statistics, copies of logs
logs              makes the log of a new topic, and has the epochs

Start and stop
startup           loads a data directory
topic_loader      loads one topic: its log and its channels
restored_position  rebuilds the position of a channel from its journal
shutdown          writes, syncs and closes each topic at the end
state_files       the names of small files, those with a checksum, and `nsqd.stop` (a clean stop)
metadata          `nsqd.dat`: topics, channels, and what is paused
clock_file        `nsqd.clock`: the steady clock
flipped_bits      corrects small files of which one bit has flipped
losses            what a start has found missing, and logs whose ends may be
drain             refuses new messages, delivers the rest, and ends
creation_rate     limits how many topics clients create

Writing
journal_writer    writes the positions of channels 20 times a second
slow_disk         writes and reads logs in threads while the disk is slow
stored_reader     reads the stored files of a log for channels
sync              fsync of logs: --sync-every and --sync-timeout
answer_gate       publishers whose answers wait until enough copies have their messages     pure

Space and health
upkeep            files that are not needed, space, damage: found, deleted, repaired

Operations on one channel
peek              shows messages without delivering them
seek              moves a channel in its topic's log

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
