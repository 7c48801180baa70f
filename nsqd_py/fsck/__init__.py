"""`nsqd-py --check-data PATH`: what a data directory holds, and whether it is well, while no nsqd uses it.

journals  a channel's journal, entry by entry                        pure
reports   what was found                                             pure
texts     a report for people and for programs                       pure
reading   reads a directory; changes nothing
repair    sets what is damaged aside, so that what is left is whole
command   the flags
"""
