"""The terminal tools: each a process between NSQ and a shell, a file or another server.

cli       how every tool begins and ends: options, exit status, pipes that are closed
options   settings that several tools share, and what follows from them
terminal  what standard output and standard error are connected with

The tools themselves: to_file, tail, stat, to_nsq, to_http, nsq_to_nsq. Each declares its settings in its own
`options`; docs/tools, the completions and the man pages are made of that.
"""
