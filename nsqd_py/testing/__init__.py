"""Real nsqds and nsqlookupds as child processes, for tests, notebooks and examples.

embedded       `nsqd_py.embedded()`: an nsqd or a small cluster on free ports
child          the process that runs a daemon, and stops it when its parent ends
pytest_plugin  the fixtures `nsqd_server`, `nsqd_topic` and `nsqd_cluster`

Threads
EmbeddedDaemon._processes, _folder  the finalizer runs in the thread that drops the last reference, when no other has one
"""
