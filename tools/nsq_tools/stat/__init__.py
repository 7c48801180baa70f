"""nsq-stat: statistics of topics and channels of many nsqds, as a live table or as lines for scripts.

options   the settings
program   its name, what it does, and examples
rows      rows of topics and channels: their values, selection and order                                      pure
model     rows made of the cluster that `nsqd_py.cluster` observes, and their history                         pure
failures  servers without an answer                                                                           pure
checking  problems: those that --check finds, and those of each round of the live table                       pure
clients   the clients of one topic
cells     numbers, sizes, bars and colours as short texts                                                     pure
export    rows, standbys and stores as lines of Go's nsq_stat, JSON, CSV or a text table                      pure
reports   one report after the other on standard output; the tool
screen    the live table: its keys, its views, and the terminal
"""
