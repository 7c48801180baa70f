"""nsq-worker: runs the handlers of an App of `nsqd_py.work` in processes of their own, and looks after these.

options     the settings
program     its name, what it does, and examples
words       what the command line asks for: run, check, run-once, dead list, ...       pure
commands    what each of these does
apps        imports the app that `module:name` names
supervisor  starts children, starts those again that end, reloads and stops them
children    a child as its parent sees it: process, socket, reports
pauses      how long the supervisor waits before it starts a child again               pure
reports     what a child reports to its parent, and sums of it                         pure
verdict     the state of all processes, and whether it is healthy                      pure
health      /healthz and /metrics of all processes
child       the program of a child: the consumers of one process
durations   how long the calls of handlers take in a child, and its report
child_log   the log of a child
checking    nsq-worker check
run_once    nsq-worker run-once
dead        nsq-worker dead list, show, replay and discard
letters     dead letters as nsqd stores them, read over HTTP

Threads
Supervisor.board  replaced as a whole by the supervisor, and read once by the thread of each HTTP request
Supervisor._changes, _wake  the thread that watches files puts, the supervisor takes: a queue of the standard library, and a
    socket that wakes the supervisor
Supervisor._signals  the handler of signals counts in the thread of the supervisor, which only reads
Durations  each thread that calls a handler adds under the lock, and the main thread of a child copies under it
"""
