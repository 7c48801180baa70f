"""nsq-stat: statistics of topics and channels of many nsqds, as a live table or as lines for scripts.

options   the settings
program   its name, what it does, and examples
rows      rows of topics and channels: their values, selection and order                                      pure
model     rows made of the cluster that `nsqd_py.cluster` observes, and their history                         pure
checking  problems: those that --check finds, and those of each round of the live table                       pure
memory    the nsqds that have gone, and how often each was started                                            pure
export    rows, and primaries with their standbys, as lines of Go's nsq_stat, JSON, CSV or a text table       pure
reports   one report after the other on standard output; the tool

The live table:

keys        the keys of a terminal, by name                                                                   pure
cursor      the selected line of a list, and the part that is visible                                         pure
navigation  what the keys change: the view, the selected line, the filter, the order                          pure
clients     the clients of one topic
cells       numbers, sizes, bars and colours as short texts                                                   pure
table       topics and channels as lines                                                                      pure
views       one topic, the problems and the help as lines                                                     pure
screen      the whole screen as lines for a terminal of a given size                                          pure
live        the live table on the terminal, and its keyboard
"""
