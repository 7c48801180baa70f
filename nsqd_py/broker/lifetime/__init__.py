"""From the start of nsqd, which loads its data path, to its end.

startup           loads a data directory
topic_loader      loads one topic: its log and its channels
restored_position  rebuilds the position of a channel from its journal
losses            what a start has found missing, and logs whose ends may be
shutdown          writes, syncs and closes each topic at the end

Threads
_Closing  owned by the event loop, by one thread (`sync`), and by the event loop again
"""
