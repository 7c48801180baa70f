"""Metrics of the last hour in small steps, and of the last day in minutes.

series       the latest values of all topics, channels and nsqds       pure
file         saves and loads them, and small documents next to them
kept         a small document that is written soon after each change

Threads
HistoryFile._path  a thread of its own pool of one writes encoded bytes to it, one write after the other; it is set at the start
"""
