"""Messages that one nsqd of the group has and another one lacks: they are fetched, and written back.

give_back     what a primary has lost comes back from its standbys
rebuilding    the files that it builds from theirs
repair        writes records that another nsqd has over damaged ones
fetch         what another nsqd of the group has of a log, to repair the files of this one
fetch_server  answers such requests

Threads
RepairedFile._descriptor  one thread at a time, for which the greenlet waits, also if it is killed. The file may be appended to,
    or read, in the meantime: only bytes that are damaged are written
StandbyMemory  one thread at a time writes `nsqd.standbys`, while the greenlet holds `_lock`
"""
