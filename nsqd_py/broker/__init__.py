"""The topics and channels of one nsqd: created, deleted, loaded at the start, and maintained on disk.

broker         creates, finds and deletes topics and channels
services       what all parts use; the interfaces of nsqlookupds, stores and readers
additions      what parts of nsqd add: the role in a group, notices, statistics, copies of logs
answer_gate    publishers whose answers wait until enough copies have their messages     pure
creation_rate  limits how many topics clients create
data_path      the directory that nsqd has loaded, and whether the data path still leads there
drain          refuses new messages, delivers the rest, and ends

Rooms in it
lifetime       from the start, which loads a data path, to the end
disk           writes, syncs and reads logs and journals
upkeep         files that are not needed, space, damage: found, deleted, repaired

Small files
state_files    their names, those with a checksum, and `nsqd.stop` (a clean stop)
metadata       `nsqd.dat`: topics, channels, and what is paused
clock_file     `nsqd.clock`: the steady clock
flipped_bits   corrects small files of which one bit has flipped

Operations on one channel
peek           shows messages without delivering them
seek           moves a channel in its topic's log

Threads
Peek.rows, ids, unreadable_count, _plan  a thread fills them while the greenlet of the request waits
MetadataWriter  a thread writes what the greenlet encoded, which waits under `_lock`: no other thread writes `nsqd.dat`
DataPath._loaded  threads read it while the event loop may replace it, in one step
ClockKeeper  one thread at a time writes `nsqd.clock`; the next write, and `close`, wait for its end
"""
