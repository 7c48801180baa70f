"""A warm standby: another nsqd that follows the logs of this one, and takes its place when it is promoted.

options       the settings of standbys and backups
part          when the parts of nsqd begin and end that a standby, a primary and the lease are
messages      the proof of membership, and what a primary and its standby say to each other   pure
group         the group's secret, certificates and addresses; connections without a proof yet
link          a connection to another nsqd of the group
fetch         what another nsqd of the group has of a log, to repair the files of this one
fetch_server  answers such requests
give_back     what a primary has lost comes back from its standbys
rebuilding    the files that it builds from theirs
primary       the standbys of a primary
stream        sends one standby or backup the rounds of a feed
acks          the nsqds that have every acknowledged message, and may take the lease          pure
follower      a standby's connection to its primary
copy          a standby's copy of the primary's files
data_path     the state of a standby's data path, and the names of its files
syncing       writes and syncs the files of a copy
departures    decides what is set aside before it leaves the copy in the name of the primary
set_aside     the directories for it
unfinished    which messages of the files are not finished
damage        what is wrong with the files of a copy: changed by other programs, damaged on the disk or on arrival
upkeep        checks the files of a copy, and repairs them
repair        writes records that another nsqd has over damaged ones
role          what a standby answers; its promotion; fencing of the old primary
election      a lease decides who is the primary
backup        --backup-to and --restore-from

Threads
Copy  a thread runs `read` before the first connection, while the greenlet of the follower waits; statistics read single fields.
    A sync has a list of paths only
RepairedFile._descriptor  one thread at a time, for which the greenlet waits, also if it is killed. The file may be appended to,
    or read, in the meantime: only bytes that are damaged are written
StandbyMemory  one thread at a time writes `nsqd.standbys`, while the greenlet holds `_lock`
"""
