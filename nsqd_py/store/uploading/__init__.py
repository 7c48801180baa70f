"""Puts what is new in a data path into the store: bases, the rounds of a feed after each of them, and log files.

stream     the greenlet that puts bases and rounds
timing     when a round begins
lag        how far the store is behind a feed
frames     the frames of a round
writing    frames as objects, and when the next base is due
log_files  log files on their way into the store, and out of it
local_damage  damage on the disk, because of which bases wait
calls      requests that are repeated until the store answers

A round is one object, or several if it is large; the last of them has the mark. Rounds are put one after the other, at
most one each interval, unless publishers wait for them: then the next one begins as soon as the last one is stored.
A base begins the state again, from the log files that are objects of their own. After an outage, or an error, too, it
is the way to go on: nothing is held in memory for a store that is away.
"""
