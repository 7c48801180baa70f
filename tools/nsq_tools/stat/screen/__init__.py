"""The live table of nsq-stat.

keys        the keys of a terminal, by name                                                                   pure
cursor      the selected line of a list, and the part that is visible                                         pure
navigation  what the keys change: the view, the selected line, the filter, the order                          pure
table       topics and channels as lines                                                                      pure
views       one topic, the problems and the help as lines                                                     pure
drawing     the whole screen as lines for a terminal of a given size                                          pure
keyboard    the keys that are pressed
live        the live table on the terminal
"""
