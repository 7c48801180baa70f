"""The levels of log lines."""

DEBUG = 1
INFO = 2
WARNING = 3
ERROR = 4
FATAL = 5
