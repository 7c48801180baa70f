"""nsq-worker: runs the handlers of an App of `nsqd_py.work` in processes of their own, and looks after these.

options      the settings
program      its name, what it does, and examples
words        what the command line asks for: run, check, run-once, dead list, ...       pure
apps         imports the app that `module:name` names
reports      what a child reports to its parent, and sums of it                         pure
pauses       how long the supervisor waits before it starts a child again               pure
child        the program of a child: the consumers of one process
children     a child as its parent sees it: process, socket, reports
supervisor   starts children, restarts them, stops them; reloads
health       /healthz and /metrics of all children
checking     nsq-worker check
run_once     nsq-worker run-once
dead         nsq-worker dead list, show, replay and discard
"""
