"""The disk of a running nsqd: files that are not needed go, space has limits, damage is found and repaired.

housekeeping  deletes and compacts log files that are no longer needed
needed        which messages of a log some channel needs, and which are retained
disk_health   write errors that last, and free space
descriptors   writers wait for a file descriptor
removed_files  log files that another program removed or cut
small_files   positions and other small files that another program removed
mending       counts and repairs damage in the logs of a primary, also where a consumer meets it
scrub         reads all logs slowly, and checks and repairs what no consumer reads
buffers       the memory of connections

Threads
RemovedFiles._check_slow  a thread checks files that are pinned, whose state only it and the thread that writes set:
    `LogFile.was_cut` is only ever set. What it finds is checked in the log again, which may have let go of it since
RemovedFiles  a thread writes a file back that is pinned and in `busy_files`, and that no log appends to; deletion and the end
    wait
SmallFiles._contents  one thread at a time looks for files, and remembers contents
_Look  owned by the event loop, by the thread that looks for the files, and by the event loop again
Housekeeper._remove_in_thread  a thread renames a file that its log has let go of, and then deletes it; deletion of the topic
    and the end wait for the new name
LogFiles  threads work on a file that is in `busy_files`, with separate descriptors and values, while its greenlet waits:
    before a name changes, the event loop checks if the topic was deleted, and `stop` waits
_Turn  owned by the scrub's greenlet, by one thread, and by the greenlet again
"""
