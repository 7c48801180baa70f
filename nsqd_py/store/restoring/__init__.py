"""Writes what a store has into a data path.

restoration  into an empty data path: everything that it needs before it serves
catching_up  into one that has lost its end, or was a copy: what is missing there, topic by topic
one_topic    one topic of such a data path, file by file
"""
