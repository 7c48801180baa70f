"""What a page presumes: servers, topics with messages, files. One function a page."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from tests.docs.machine import BIN, Machine, Server
from tests.support.archives import BASE_NS, Message, framed
from tests.support.go_directory import GoDirectory, GoMessage, go_messages
from tests.support.nsqd_process import REPOSITORY, NsqdProcess
from tests.support.stored import StoreOfFiles

HOSTS = ("10.0.0.1", "10.0.0.2")
Presumed = Callable[[Machine, Path], None]

# Publishes messages of each topic until it is ended: tools that take new messages only see some.
_PUBLISHER = """
import http.client, sys, time

connection = http.client.HTTPConnection("127.0.0.1:4151")
while True:
    try:
        for topic in sys.argv[1:]:
            for status in 200, 503:
                body = f'{{"id": 7, "url": "/", "at": 1, "state": "paid", "status": {status}}}'
                connection.request("POST", f"/pub?topic={topic}", body)
                connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        connection.close()
    time.sleep(0.1)
"""
# The app of nsq-worker's page.
_APP = """
from nsqd_py.work import App

app = App("shop", nsqd_tcp_addresses="127.0.0.1:4150")


@app.handler("orders", channel="billing")
def bill(order: dict) -> None:
    print("billed", order["id"], flush=True)
"""


def nsqd(
    machine: Machine,
    address: str = "127.0.0.1",
    lookupds: Sequence[str] = ("127.0.0.1",),
    flags: Sequence[str] = (),
) -> Server:
    """Start an nsqd on its default ports at one address."""
    name = f"nsqd-{address}"
    (machine.directory / name).mkdir()
    host = machine.text(f"{address}:4150").partition(":")[0]  # the one that others reach it by
    return Server(
        machine,
        name,
        [
            "nsqd-py",
            f"--tcp-address={address}:4150",
            f"--http-address={address}:4151",
            f"--broadcast-address={host}",
            *(f"--lookupd-tcp-address={lookupd}:4160" for lookupd in lookupds),
            f"--data-path={machine.directory / name}",
            "--sync-timeout=100ms",
            *flags,
        ],
        ready="HTTP: listening",
    )


def nsqlookupd(machine: Machine, address: str = "127.0.0.1") -> Server:
    """Start an nsqlookupd on its default ports at one address."""
    command = ["nsqlookupd-py", f"--tcp-address={address}:4160", f"--http-address={address}:4161"]
    return Server(machine, f"nsqlookupd-{address}", command, ready="HTTP: listening")


def cluster(machine: Machine) -> None:
    """One nsqlookupd and one nsqd, on the ports of `make run`."""
    nsqlookupd(machine)
    nsqd(machine)


def run_in(machine: Machine, cwd: Path, script: str) -> None:
    """Run a few lines of bash there. Raises CalledProcessError."""
    line = ["bash", "--norc", "-e", "-c", machine.text(script)]
    if status := machine.popen(line, cwd, stdin=subprocess.DEVNULL).wait(40):
        raise subprocess.CalledProcessError(status, script)


def publish_all_the_time(machine: Machine, cwd: Path, *topics: str) -> None:
    command = [sys.executable, "-c", machine.text(_PUBLISHER), *topics]
    machine.popen(command, cwd, stdin=subprocess.DEVNULL)


def orders(cwd: Path) -> None:
    """Write orders.jsonl."""
    lines = [json.dumps({"id": number, "status": 200}) for number in range(3)]
    (cwd / "orders.jsonl").write_text("\n".join(lines) + "\n")


# ---- pages


def readme(machine: Machine, cwd: Path) -> None:
    """A checkout whose .venv holds this installation."""
    for name in ("Makefile", "setup.cfg", "setup.py", "pyproject.toml", "contrib"):
        (cwd / name).symlink_to(REPOSITORY / name)
    (cwd / ".venv").mkdir()
    (cwd / ".venv/bin").symlink_to(BIN)
    (cwd / ".venv/.installed").touch()  # so that make installs nothing


def to_nsq(machine: Machine, cwd: Path) -> None:
    nsqd(machine)
    nsqd(machine, "10.0.0.1")
    nsqd(machine, "10.0.0.2")
    orders(cwd)
    (cwd / "access.log").write_text("GET /\nGET /\nGET /\n")


def nsq_stat(machine: Machine, cwd: Path) -> None:
    cluster(machine)
    run_in(machine, cwd, "curl -X POST 'http://127.0.0.1:4151/topic/create?topic=orders'")
    run_in(machine, cwd, "curl -X POST 'http://127.0.0.1:4151/channel/create?topic=orders&channel=archive'")
    publish_all_the_time(machine, cwd, "orders")


def nsq_tail(machine: Machine, cwd: Path) -> None:
    cluster(machine)
    publish_all_the_time(machine, cwd, "orders", "returns")


def nsq_to_file(machine: Machine, cwd: Path) -> None:
    cluster(machine)
    publish_all_the_time(machine, cwd, "orders", "audit_logins")


def small_files(machine: Machine, cwd: Path) -> None:
    nsqd(machine)
    publish_all_the_time(machine, cwd, "orders")


def nsq_to_http(machine: Machine, cwd: Path) -> None:
    cluster(machine)
    addresses = [f"{host}:8080" for host in ("127.0.0.1", "10.0.0.1", "10.0.0.2")]
    sink = [sys.executable, str(REPOSITORY / "tests/docs/web_sink.py"), str(cwd / "requests.log"), *addresses]
    Server(machine, "sink", sink, ready="serving")
    publish_all_the_time(machine, cwd, "clicks")


def nsq_to_nsq(machine: Machine, cwd: Path) -> None:
    cluster(machine)
    nsqd(machine, "10.0.0.1")
    nsqd(machine, "10.0.0.2")
    publish_all_the_time(machine, cwd, "clicks", "orders")


def client(machine: Machine, cwd: Path) -> None:
    """Two of everything; the channels of the page are there before its messages."""
    for address in HOSTS:
        nsqlookupd(machine, address)
    for address in HOSTS:
        nsqd(machine, address, lookupds=HOSTS)
        run_in(machine, cwd, f"curl -X POST 'http://{address}:4151/topic/create?topic=orders'")
        run_in(
            machine, cwd, f"curl -X POST 'http://{address}:4151/channel/create?topic=orders&channel=billing'"
        )
    for topic in "audits", "readings", "payments":
        run_in(
            machine,
            cwd,
            f"for number in 1 2 3; do curl -d $number 'http://10.0.0.1:4151/pub?topic={topic}'; done",
        )
    lines = [json.dumps({"id": number, "paid": True}) for number in range(5, 10)]
    (cwd / "orders.jsonl").write_text("\n".join(lines) + "\n")


def work_django(machine: Machine, cwd: Path) -> None:
    """An nsqd, and the project of the examples in the current directory."""
    nsqd(machine, "127.0.0.1", lookupds=())
    shutil.copytree(REPOSITORY / "examples" / "django_shop", cwd / "django_shop")


def configured(machine: Machine) -> None:
    """Put config files into /etc/nsq."""
    for name in "nsqd.toml", "nsqlookupd.toml":
        (machine.path("/etc/nsq") / name).write_text("")


def operations(machine: Machine, cwd: Path) -> None:
    """A message that no channel takes keeps a drain waiting."""
    configured(machine)
    with on_data_path(machine) as nsqd:
        nsqd.post("/pub?topic=orders", b"order")


def take_over(machine: Machine, cwd: Path) -> None:
    """What Go's nsqd has left: a topic with two channels, and messages on their way to them."""
    configured(machine)
    go = GoDirectory(machine.path("/var/lib/nsqd"))
    go.name_topics({"orders": ["billing", "audit"]})
    go.queue("orders", sized(12, first=0))
    go.queue("orders:billing", sized(840, first=12))
    go.queue("orders:audit", sized(3, first=852))


def sized(count: int, first: int) -> list[GoMessage]:
    """Messages of 200 bytes."""
    return go_messages([b"%0200d" % number for number in range(first, first + count)], first)


def durability(machine: Machine, cwd: Path) -> None:
    """An nsqd at nsq1 for the requests, and the data path of another one, which was stopped."""
    nsqd(machine, "127.0.0.1", flags=["--retention-time=orders=24h"])
    run_in(machine, cwd, "curl -d order 'http://nsq1:4151/pub?topic=orders'")
    run_in(machine, cwd, "curl -X POST 'http://nsq1:4151/channel/create?topic=orders&channel=billing'")
    with on_data_path(machine, "--max-bytes-per-file=200000", "--mem-queue-size=0") as stopped:
        stopped.create("orders", "billing", "archive")
        stopped.publish("orders", [b"%0100d" % number for number in range(4000)], batch=200)
        with stopped.connect() as publisher:
            for _ in range(5):
                publisher.dpub("orders", 3_600_000, b"%0100d" % 0)
            publisher.mpub("lonely", [b"%0500d" % number for number in range(2)])
        for channel, count in ("billing", 1500), ("archive", 1):
            with stopped.consumer("orders", channel, count) as consumer:
                received = consumer.messages(count)
                consumer.send(b"RDY 0\n")  # else more would be in flight
                consumer.fin(*received)
                consumer.round_trip()
        stopped.post("/channel/pause?topic=orders&channel=archive")
        stopped.wait_for_channel("orders", "billing", depth=2500, in_flight_count=0, deferred_count=5)


@contextmanager
def on_data_path(machine: Machine, *flags: str) -> Iterator[NsqdProcess]:
    """An nsqd of the tests, outside of the machine, on its /var/lib/nsqd; stopped in the end."""
    with NsqdProcess(machine.path("/var/lib/nsqd"), *flags).start() as process:
        yield process
        assert process.stop() == 0


def nsqadmin(machine: Machine, cwd: Path) -> None:
    cluster(machine)


def opentelemetry(machine: Machine, cwd: Path) -> None:
    nsqd(machine)


def debugging(machine: Machine, cwd: Path) -> None:
    """An nsqd that anybody may look into, and one that has the `auth` of the page as its file of passwords."""
    nsqd(machine)
    (cwd / "auth").write_text(f"token:test:{'0' * 64}\n")  # nobody can log in with it
    nsqd(machine, "10.0.0.1", flags=[f"--http-auth-file={cwd / 'auth'}"])
    run_in(machine, cwd, "curl -d order 'http://10.0.0.1:4151/pub?topic=orders'")


def spark(machine: Machine, cwd: Path) -> None:
    """60 orders, of which a third are errors, a minute apart, and 5 clicks; a topic with 3 orders."""
    nsqd(machine)
    orders = [
        Message(
            json.dumps({"level": "info" if number % 3 else "error", "n": number}).encode(),
            timestamp_ns=BASE_NS + number * 60 * 10**9,
        )
        for number in range(60)
    ]
    (machine.path("/archive") / "all.framed").write_bytes(framed([orders, [Message(b"click", "clicks")] * 5]))
    for _ in range(3):
        run_in(machine, cwd, "curl -d order 'http://127.0.0.1:4151/pub?topic=orders'")


def nsq_worker(machine: Machine, cwd: Path) -> None:
    """An app with the handler `bill`."""
    nsqd(machine)
    (cwd / "shop").mkdir()
    (cwd / "shop/work.py").write_text(machine.text(_APP))


def spark_replay(machine: Machine, cwd: Path) -> None:
    """Orders of the hour that the page names, orders of the last minutes, and a data path."""
    cluster(machine)
    hour_ns = int(datetime(2025, 11, 20, 10, 30, tzinfo=UTC).timestamp()) * 10**9
    bodies = [
        json.dumps({"id": number, "status": 200 + 300 * (number % 2)}).encode() for number in range(100)
    ]
    for name, first_ns in ("then", hour_ns), ("now", time.time_ns() - 600 * 10**9):
        messages = [
            Message(body, timestamp_ns=first_ns + number * 10**7, id=f"{first_ns + number:016x}")
            for number, body in enumerate(bodies)
        ]
        (machine.path("/archive") / f"orders.{name}.framed").write_bytes(framed([messages]))
    with on_data_path(machine) as process:
        process.post("/pub?topic=late", b"order")


def a_store(machine: Machine) -> None:
    """A store of nsqd with some orders, in /var/lib/store."""
    store = StoreOfFiles(machine.path("/var/lib/store").as_uri())
    with on_data_path(machine, "--max-bytes-per-file=4096") as process:
        for number in range(100):
            process.post("/pub?topic=orders", b'{"id": %d, "status": "paid"}' % number)
        store.base(process.data_path)


def store_page(machine: Machine, cwd: Path) -> None:
    a_store(machine)


def spark_compact(machine: Machine, cwd: Path) -> None:
    a_store(machine)


def nsq_cat(machine: Machine, cwd: Path) -> None:
    """Archives in three formats, a log and a store of nsqd."""
    archive, paid = machine.path("/archive"), Message(b'{"id": 1, "status": "paid"}')
    (archive / "orders.framed").write_bytes(framed([[paid]]))
    (archive / "orders.2026-11-24.jsonl.gz").write_bytes(gzip.compress(b'{"topic": "orders", "body": "x"}\n'))
    (archive / "old.log.gz").write_bytes(gzip.compress(b"an error\nanother line\n"))
    a_store(machine)
    with on_data_path(machine) as process:
        process.post("/pub?topic=orders", b"order")


def nothing(machine: Machine, cwd: Path) -> None:
    """The page needs nothing but what is installed."""


# Their blocks start daemons on the default ports.
STARTS_ITS_OWN = {
    "docs/backup.md",
    "docs/nsqadmin.md",
    "docs/operations.md",
    "docs/standby.md",
    "docs/store.md",
    "docs/take-over.md",
    "docs/tutorial.md",
}

PRESUMED: dict[str, Presumed] = {
    "CONTRIBUTING.md": nothing,
    "README.md": readme,
    "docs/archives.md": nothing,
    "docs/client.md": client,
    "docs/containers.md": nothing,
    "docs/debugging.md": debugging,
    "docs/durability.md": durability,
    "docs/index.md": nothing,
    "docs/integrations.md": nothing,
    "docs/nsqadmin.md": nsqadmin,
    "docs/opentelemetry.md": opentelemetry,
    "docs/operations.md": operations,
    "docs/security.md": nothing,
    "docs/sizing.md": nothing,
    "docs/small-files.md": small_files,
    "docs/spark.md": spark,
    "docs/backup.md": nothing,
    "docs/lease.md": nothing,
    "docs/standby.md": nothing,
    "docs/take-over.md": take_over,
    "docs/testing.md": nothing,
    "docs/store.md": store_page,
    "docs/tools/nsq-cat.md": nsq_cat,
    "docs/tools/nsq-stat.md": nsq_stat,
    "docs/tools/nsq-tail.md": nsq_tail,
    "docs/tools/nsq-to-file.md": nsq_to_file,
    "docs/tools/nsq-to-http.md": nsq_to_http,
    "docs/tools/nsq-to-nsq.md": nsq_to_nsq,
    "docs/tools/nsq-worker.md": nsq_worker,
    "docs/tools/spark-compact.md": spark_compact,
    "docs/tools/spark-replay.md": spark_replay,
    "docs/tools/to-nsq.md": to_nsq,
    "docs/tutorial.md": nothing,
    "docs/django.md": work_django,
    "docs/work.md": nothing,
}
