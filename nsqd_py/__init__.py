"""nsqd in Python: a message queue daemon that speaks the NSQ protocol byte for byte.

The way of a message:
1. net/transport.py reads bytes from a socket; protocol/parser.py makes commands of them.
2. tcp/connection.py hands a PUB to queue/topic.py; most come the short way, through tcp/fast_publishing.py. HTTP publishes
   arrive there from api/publishing.py.
3. At the end of the event-loop iteration, net/loop_iteration.py lets each topic write all publishes of the
   iteration as one batch to its log (diskqueue/log.py). Then the answers `OK` leave.
4. Each channel gives the released messages to its ready consumers (queue/channel.py, delivery.py, position.py).
5. protocol/frames.py cuts frames out of the batch, pqueues/in_flight.py remembers them, and one send per connection
   carries them.
6. A FIN ends the message; broker/disk/journal_writer.py writes the channel's position to disk 20 times a second.

Modules at the top:
taskiq    a broker for taskiq
errors    every error of nsqd, with the form that clients see                 pure
clock     the wall clock and the steady clock
version   the version of this project, and of the NSQ release that it matches

`nsqd_py.embedded()` starts a real nsqd for a test or a notebook (testing/embedded.py).

Rooms, each importing only those below it (setup.cfg has the contracts):
server      nsqd's settings, and the objects that it is made of
api         nsqd's HTTP paths
otel        OpenTelemetry for Producer and Consumer
stats       statistics for /stats, statsd and Prometheus
fsck        --check-data and --export-to-go
store       the messages of one nsqd in a bucket or directory, from which they outlive its machine
tcp         connections of NSQ clients
lookup      nsqd's side of nsqlookupd
standby     a second nsqd that follows this one, and replaces it
go_import   takes over the data of Go's nsqd
feed        what is new in a data path, for those that copy it
broker      the topics and channels that exist, start-up, upkeep of the disk
queue       topics, channels, delivery
stores      object stores, and the current files of Delta and Iceberg tables
diskqueue   the log on disk
auth        access rules from an auth server
lease       leases of etcd or in a bucket, which decide who is the primary
cluster     asks nsqlookupds and nsqds over HTTP; their statistics
objects     objects by name in a bucket or directory
client      Producer and Consumer
net         sockets, TLS, compression, HTTP
debug       stacks, profiles and memory of a running process
settings    flags, config files and what is printed from them
runtime     log, signals, systemd, threads
pqueues     what waits for a time: messages in flight, deferred messages, alarms
protocol    the NSQ protocol without I/O
testing     nsqds as child processes, and the pytest plugin
work        handlers with values, retries, dead letters and time limits, over the client
django      a backend for django.tasks, on work
celery      a transport of kombu, so that Celery uses nsqds as its broker
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.testing.embedded import embedded as embedded


__all__ = ["embedded"]


def __getattr__(name: str) -> Any:
    # Imported when it is used: each program imports this package at its start.
    if name == "embedded":
        from nsqd_py.testing.embedded import embedded

        return embedded
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
