"""nsq-stat: what topics and channels of many nsqd are doing, as a live table or as lines for scripts.

What is pure, and takes time as an argument:
figures     what one nsqd told: counts of topics and channels
model       rows over all nsqd: sums, changes per second, the history of depths
selection   which rows are shown, in which order
go_columns  Go's lines, for a pipe
export      the same rows as JSON, CSV, or plain text in columns
columns     the columns of the live table, and which of them fit
keys        keys as a terminal sends them
controls    what keys do to the live table: order, scrolling, a filter
screen      the live table for a terminal of some size

What asks and shows:
options     the settings
sources     asks one nsqd, or one nsqlookupd
poller      asks all of them at the same time, so that none delays the others
reports     one report after the other on standard output
keyboard    reads single keys from the terminal
live        the table on the terminal
run         the tool
"""
