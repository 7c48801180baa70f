"""`nsqd-py --check-data PATH` and `--repair`: examine a data directory that no nsqd uses.

options   the settings
command   runs the check or the repair, instead of serving
reading   reads a directory as a start would, and changes nothing
counting  counts messages by topic, channel and state                    pure
reports   the findings as data                                           pure
texts     the findings as text and as JSON                               pure
repair    copies damaged bytes aside, and rewrites the files
"""
