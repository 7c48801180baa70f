"""Finding messages in the log of a topic.

filters     which bodies match: text, regular expression, a value in JSON
json_path   a small language for values in JSON
log_search  reads the log of one nsqd, and keeps the matching messages

Threads
LogSearch  a thread reads one answer while the greenlet of the request waits
"""
