"""`nsqd-py --check-data PATH` and `--export-to-go DIR`: work on a data directory that no nsqd uses.

options    the settings of both
command    runs the check or the export, instead of serving
reading    reads a directory as a start would, changes nothing, and counts messages
reports    the findings as data, as text and as JSON                     pure
go_export  writes the unfinished messages as files of Go's nsqd
"""
