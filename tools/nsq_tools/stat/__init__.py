"""nsq-stat: figures of topics and channels of many nsqds, as a live table or as lines for scripts.

options     the settings
model       rows of the cluster that `nsqd_py.cluster` observes; the history of their depths      pure
selection   choosing and sorting rows                                                             pure
export      rows as lines of Go's nsq_stat, JSON, CSV or a text table                             pure
checks      what --check reports                                                                  pure
standbys    primaries and their standbys in these forms                                       pure
reports     one report after the other on standard output
columns     the columns of the live table; fitting them to a width                                pure
controls    decoding keys; what they change: order, scrolling, filter                             pure
screen      the live table as lines for a terminal of a given size                                pure
live        the live table on the terminal, and its keyboard
run         the tool
"""
