"""Real nsqds and nsqlookupds as child processes, for tests, notebooks and examples.

embedded       `nsqd_py.embedded()`: an nsqd or a small cluster on free ports
child          the process that runs a daemon, and stops it when its parent ends
pytest_plugin  the fixtures `nsqd_server`, `nsqd_topic` and `nsqd_cluster`
"""
