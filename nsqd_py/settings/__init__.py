"""Settings, declared once: flags, config files, --help, completion and reference pages are made from them.

declaration    a setting, a program, and the reading of its command line and config file
types          how a value is read, checked and shown
command        the start of a daemon's command: options, log, refusal
help           the text of --help
completion     scripts that complete flags in a shell
docs           a reference page in Markdown
example        an example config file

durations      Go's durations, such as 1h30m                                pure
timestamps     times as users write them                                    pure
literals       values as flags and options spell them                       pure
regex          regular expressions that run in linear time                  pure
topic_rules    settings that differ by topic: PATTERN=VALUE

log_options    the log settings that all servers share
limit_options  the limits that all servers share
"""
