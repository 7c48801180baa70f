"""The terminal tools: each a process between NSQ and a shell, a file or another server.

cli       how every tool begins and ends: options, exit status, pipes that are closed
options   settings that several tools share, and what follows from them
terminal  what standard output and standard error are connected with
columns   messages in columns, as tools take them from a consumer
hosts     which of several hosts gets the next message                       pure
timings   status lines: how long the last messages took

The tools, each with its settings in its own `options`, from which docs/tools and the completions are made:
to_nsq      publishes standard input
tail        shows messages
stat        shows figures of topics and channels
to_file     archives messages
to_http     sends messages to HTTP servers
nsq_to_nsq  forwards messages to other nsqds
"""
