"""A standby's copy of the files of its primary.

copy        a standby's copy of the primary's files
data_path   the state of a standby's data path, and the names of its files
syncing     writes and syncs the files of a copy
departures  decides what is set aside before it leaves the copy in the name of the primary
set_aside   the directories for it
unfinished  which messages of the files are not finished
damage      what is wrong with the files of a copy: changed by other programs, damaged on the disk or on arrival
upkeep      checks the files of a copy, and repairs them

Threads
Copy  a thread runs `read` before the first connection, while the greenlet of the follower waits; statistics read single fields.
    A sync has a list of paths only
"""
