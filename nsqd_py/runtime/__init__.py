"""The process of a daemon, and small things that every program needs.

process        start and end of a daemon's process
early_signals  holds signals back until the program handles them
systemd        readiness, watchdog and sockets of systemd
threads        runs blocking work in gevent's thread pool
pace           splits long work of a greenlet into slices
loop_lag       how late the event loop is
backoff        delays between attempts                                      pure
histogram      counts of values between bounds                              pure
private_files  creates files that only their owner may read

logs           log lines, as text or as JSON
log_levels     their levels
log_sink       writes them, without ever blocking the daemon
client_log     limits log lines that clients cause
outage_log     logs the start, reminders and the end of a lasting failure
one_line       makes foreign text safe for a log line                       pure
"""
