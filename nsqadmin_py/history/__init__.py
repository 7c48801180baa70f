"""Metrics of the last hour in small steps, and of the last day in minutes.

series       the latest values of all topics, channels and nsqds       pure
file         saves and loads them

Threads
HistoryFile._path  a thread of its own pool of one writes encoded bytes to it, one write after the other; it is set at the start
"""
