"""nsq-stat: statistics of topics and channels of many nsqds, as a live table or as lines for scripts.

options  the settings
rows     rows of topics and channels: their values, selection and order                                      pure
checking  the problems that --check finds, and its exit status                                               pure
model    rows made of the cluster that `nsqd_py.cluster` observes, and their history                         pure
export   rows, and primaries with their standbys, as lines of Go's nsq_stat, JSON, CSV or a text table       pure
screen   the live table, its columns, as lines for a terminal of a given size                                pure
live     the live table on the terminal, and its keyboard
reports  one report after the other on standard output; the tool
"""
