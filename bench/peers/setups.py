"""Servers with the flags that make each keep one promise: what an answer means. They are the columns of the tables."""

import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.peers.beanstalkd import Beanstalkd
from bench.peers.jetstream import JetStream
from bench.peers.limit import Limit
from bench.peers.nsqd import Nsqd
from bench.peers.protocol import PublisherProtocol
from bench.peers.rabbitmq import RabbitMQ
from bench.peers.redis import Redis
from bench.server import Daemon

IN_MEMORY, WRITE_AHEAD, SYNCED = "in memory", "write-ahead", "synced"
_MORE_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
# The program of that name on Debian's PATH runs this one as another user, in a session that the bench cannot end.
_RABBITMQ_FOLDER = "/usr/lib/rabbitmq/bin"


@dataclass(frozen=True, slots=True)
class Setup:
    """A server and its flags.

    program      its name, as it is found on PATH; or, with a dot, one of our modules
    durability   the class in which it is compared
    promise      what has happened to a message when its answer is sent
    """

    name: str
    daemon: Daemon
    program: str
    durability: str
    promise: str
    flags: tuple[str, ...] = ()

    @property
    def is_ours(self) -> bool:
        return "." in self.program


_NSQD = Daemon("nsqd", "nsq_apps.nsqd", keeps_data=True, server=Nsqd)
_REDIS = Daemon("redis-server", "", keeps_data=True, server=Redis)
_JETSTREAM = Daemon("nats-server", "", keeps_data=True, server=JetStream)
_BEANSTALKD = Daemon("beanstalkd", "", keeps_data=True, server=Beanstalkd)
_RABBITMQ = Daemon("rabbitmq-server", "", keeps_data=True, server=RabbitMQ)
_LIMIT = Daemon("limit", "bench.peers.bare_server", keeps_data=True, server=Limit)

OURS = Setup("nsqd-py", _NSQD, "nsq_apps.nsqd", WRITE_AHEAD, "written to the log of its topic")
OURS_SYNCED = Setup(
    "nsqd-py, synced", _NSQD, "nsq_apps.nsqd", SYNCED, "written and synced; waiting publishers share a sync",
    ("--sync-every=1",),
)  # fmt: skip
GO = Setup("Go nsqd", _NSQD, "nsqd", IN_MEMORY, "kept in memory", ("--mem-queue-size=10000000",))
GO_ON_DISK = Setup(
    "Go nsqd, on disk", _NSQD, "nsqd", WRITE_AHEAD, "written to a file soon afterwards", ("--mem-queue-size=0",)
)
JETSTREAM = Setup(
    "JetStream", _JETSTREAM, "nats-server", WRITE_AHEAD, "written to the file of its stream, synced every 2 minutes"
)
REDIS = Setup(
    "Redis everysec", _REDIS, "redis-server", WRITE_AHEAD, "written to the append-only file, synced every second",
    ("--appendfsync", "everysec"),
)  # fmt: skip
REDIS_SYNCED = Setup(
    "Redis always", _REDIS, "redis-server", SYNCED, "written to the append-only file and synced",
    ("--appendfsync", "always"),
)  # fmt: skip
BEANSTALKD = Setup(
    "beanstalkd", _BEANSTALKD, "beanstalkd", WRITE_AHEAD, "written to the write-ahead log (`-b`), synced every second",
    ("-f", "1000"),
)  # fmt: skip
BEANSTALKD_SYNCED = Setup(
    "beanstalkd -f0", _BEANSTALKD, "beanstalkd", SYNCED, "written to the write-ahead log (`-b`) and synced", ("-f0",)
)
RABBITMQ = Setup(
    "RabbitMQ", _RABBITMQ, "rabbitmq-server", SYNCED, "persistent, in a durable queue, and confirmed after its sync"
)
LIMIT = Setup("limit", _LIMIT, "bench.peers.bare_server", WRITE_AHEAD, "written to a file, by a server without a queue")
LIMIT_SYNCED = Setup(
    "limit, synced", _LIMIT, "bench.peers.bare_server", SYNCED, "written and synced, by a server without a queue",
    ("--sync",),
)  # fmt: skip

SETUPS: Mapping[str, Setup] = {
    setup.name: setup
    for setup in (
        OURS, GO, GO_ON_DISK, JETSTREAM, REDIS, BEANSTALKD, LIMIT,
        OURS_SYNCED, REDIS_SYNCED, BEANSTALKD_SYNCED, RABBITMQ, LIMIT_SYNCED,
    )
}  # fmt: skip


def protocol_of(setup: Setup) -> type[PublisherProtocol]:
    server = setup.daemon.server
    assert server is not None and issubclass(server, PublisherProtocol)
    return server


def find_command(setup: Setup, folders: Iterable[Path] = ()) -> tuple[str, ...] | None:
    """Return the command that starts it; None if the program is neither in `folders` nor on PATH."""
    if setup.is_ours:
        return (sys.executable, "-m", setup.program)
    path = find_program(setup.program, folders)
    return (path,) if path else None


def find_program(name: str, folders: Iterable[Path] = ()) -> str | None:
    """Return the path of a peer's program: from `folders`, or from PATH."""
    for place in (*map(str, folders), _RABBITMQ_FOLDER, None, *_MORE_FOLDERS):
        if path := shutil.which(name, path=place):
            return path
    return None
