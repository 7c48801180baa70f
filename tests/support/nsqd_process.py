"""A daemon as a child process; and nsqd as one, with helpers to look into it from outside.

The environment variable NSQD_COMMAND replaces the program under test, to run the same tests on another nsqd.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from tests.support import forked
from tests.support.network import LOOPBACK, Host
from tests.support.wire import Client, Message

REPOSITORY = Path(__file__).resolve().parents[2]
LISTENING = re.compile(r"\b(TCP|HTTP): listening on \S*:(\d+)\s")
START_DEADLINE_S = 40.0
STOP_DEADLINE_S = 40.0
# The pause between two questions is a part of the time that has passed, so that long waits cost little.
LEAST_PAUSE_S, MOST_PAUSE_S, PAUSE_SHARE = 0.01, 0.1, 0.05

T = TypeVar("T")


def command_of(daemon: str) -> list[str]:
    """The command of nsqd, nsqlookupd or nsqadmin, which a variable as NSQD_COMMAND replaces."""
    command = os.environ.get(f"{daemon.upper()}_COMMAND")
    return shlex.split(command) if command else [sys.executable, "-m", f"nsq_apps.{daemon}"]


def nsqd_command() -> list[str]:
    return command_of("nsqd")


def command_with(daemon: str, constants: Mapping[str, float]) -> list[str]:
    """The command of one of our daemons, with other values for constants, such as time-outs, by their full names."""
    lines = (
        "import sys",
        *(
            f"import {name.rpartition('.')[0]}; assert {name}; {name} = {value}"
            for name, value in constants.items()
        ),
        f"from nsq_apps.{daemon} import main",
        "sys.exit(main())",
    )
    return [sys.executable, "-c", "; ".join(lines)]


def is_ours() -> bool:
    """False if another nsqd is under test, which keeps less than ours."""
    return nsqd_command()[0] == sys.executable


def wait_until(condition: Callable[[], T], deadline_s: float = 40.0, what: str = "the condition") -> T:
    """Asks until the answer is true, and returns it. Fails at the deadline with the last answer."""
    began_s = time.monotonic()
    while not (answer := condition()):
        waited_s = time.monotonic() - began_s
        if waited_s > deadline_s:
            raise AssertionError(f"waited {deadline_s} s for {what}, last was {answer!r}")
        time.sleep(min(max(LEAST_PAUSE_S, waited_s * PAUSE_SHARE), MOST_PAUSE_S))
    return answer


def _cpu_s(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError):  # the thread has ended
        return 0.0


# make_nsqd(*flags) starts an nsqd on a data directory of its own; see tests/conftest.py.
MakeNsqd = Callable[..., "NsqdProcess"]


class HTTPAnswer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def refusal(self) -> str:
        """The status and the message of an error that says nothing else, as "404 TOPIC_NOT_FOUND"."""
        [(key, message)] = self.json().items()
        assert key == "message"
        return f"{self.status} {message}"


class ServerProcess:
    """A program that logs where it listens. It may be started, stopped and killed many times.

    With port 0 it gets new ports at each start. `tcp_port` and `http_port` are those of its last start.
    """

    is_executed = False  # True: never forked from a process that has imported it
    listens_for: tuple[str, ...] = ("TCP", "HTTP")

    def __init__(
        self,
        command: Sequence[str],
        flags: Sequence[str],
        log_path: Path,
        host: Host = LOOPBACK,
        ports: tuple[int, int] = (0, 0),
    ) -> None:
        self.host = host
        self.log_path = log_path
        self.tcp_port, self.http_port = ports
        self._command = [
            *host.command_prefix,
            *command,
            f"--tcp-address={host.address}:{self.tcp_port}",
            f"--http-address={host.address}:{self.http_port}",
            f"--broadcast-address={host.address}",
            *flags,
        ]
        self._process: subprocess.Popen[bytes] | forked.Forked | None = None
        self._log_start = 0

    # --- its life

    @property
    def tcp_address(self) -> str:
        return f"{self.host.address}:{self.tcp_port}"

    @property
    def http_address(self) -> str:
        return f"{self.host.address}:{self.http_port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def loop_cpu_s(self) -> float:
        """CPU time of the main thread, which runs the event loop. Waits measured in it do not depend on other
        programs that use the machine.
        """
        return _cpu_s(Path(f"/proc/{self.pid}/task/{self.pid}"))

    def launch(self) -> None:
        """Starts the process, and does not wait for it to listen."""
        assert not self.is_running
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            self._process = self._forked(log.fileno()) or subprocess.Popen(
                self._command, cwd=REPOSITORY, stdout=log, stderr=log
            )

    def _forked(self, output: int) -> forked.Forked | None:
        if self.is_executed:
            return None
        with open(os.devnull) as nothing:
            return forked.start(self._command, REPOSITORY, [nothing.fileno(), output, output])

    def wait_until_it_listens(self) -> None:
        ports = wait_until(self._read_ports, START_DEADLINE_S, f"{self.log_path.stem} to listen")
        self.tcp_port, self.http_port = ports.get("TCP", 0), ports["HTTP"]

    def start(self) -> Self:
        self.launch()
        self.wait_until_it_listens()
        return self

    def fails_to_start(self, status: int = 1) -> str:
        """What it logs when it ends by itself, with this status."""
        self.launch()
        assert self.wait() == status
        return self.log_text()

    def stop(self) -> int:
        """Ends it with SIGTERM; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """Ends it with SIGKILL: nothing in it gets to run again."""
        self.signal(signal.SIGKILL)
        self.wait()

    def restart(self, *, clean: bool = True) -> None:
        """Stops (or, if not clean, kills) it and starts it on the same data, on new ports."""
        if clean:
            self.stop()
        else:
            self.kill()
        self.start()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, deadline_s: float = STOP_DEADLINE_S) -> int:
        """The exit status, when it has ended."""
        return self._process.wait(deadline_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def destroy(self) -> None:
        if self.is_running:
            self.kill()

    def log_text(self) -> str:
        """What it has logged since its last start."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _read_ports(self) -> dict[str, int]:
        """The ports by name; none before it listens on all of them."""
        ports = {name: int(port) for name, port in LISTENING.findall(self.log_text())}
        if len(ports) == len(self.listens_for):
            return ports
        assert self.is_running, f"{self.log_path.stem} ended at start:\n{self.log_text()}"
        return {}

    # --- talking to it

    def http(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> HTTPAnswer:
        connection = http.client.HTTPConnection(self.host.address, self.http_port, timeout=40)
        try:
            connection.connect()
            # A body that is too big is refused before all of it has left here.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return HTTPAnswer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def post(self, path: str, body: bytes = b"") -> HTTPAnswer:
        """A POST that has to succeed."""
        answer = self.http("POST", path, body)
        assert answer.status == 200, answer
        return answer

    def is_healthy(self) -> bool:
        answer = self.http("GET", "/ping")
        return (answer.status, answer.body) == (200, b"OK")


P = TypeVar("P", bound=ServerProcess)


@contextlib.contextmanager
def started(kind: Callable[..., P], path: Path) -> Iterator[Callable[..., P]]:
    """Yield a function that starts a process on `path` with a number behind its name. All end with the block."""
    processes: list[P] = []

    def start(*flags: str, **settings: Any) -> P:
        processes.append(kind(path.with_stem(f"{path.stem}{len(processes)}"), *flags, **settings))
        return processes[-1].start()

    yield start
    for process in processes:
        process.destroy()


class NsqdProcess(ServerProcess):
    """One nsqd with its data directory."""

    def __init__(
        self,
        data_path: Path,
        *flags: str,
        host: Host = LOOPBACK,
        ports: tuple[int, int] = (0, 0),
        command: Sequence[str] | None = None,
    ) -> None:
        log_path = data_path.with_name(data_path.name + ".log")
        super().__init__(
            command or nsqd_command(), [f"--data-path={data_path}", *flags], log_path, host, ports
        )
        self.data_path = data_path

    def launch(self) -> None:
        self.data_path.mkdir(exist_ok=True)
        super().launch()

    def wait_until_it_listens(self) -> None:
        """With a lease, also until it has a role."""
        super().wait_until_it_listens()
        if any(flag.startswith("--lease=") for flag in self._command):
            wait_until(
                lambda: not self.waits_for_lease(), START_DEADLINE_S, f"{self.log_path.stem} to have a role"
            )
            super().wait_until_it_listens()

    def waits_for_lease(self) -> bool:
        """True before it is a primary or a standby."""
        with contextlib.suppress(OSError):  # it is between two roles
            return b"waiting for the lease" in self.http("GET", "/ping").body
        return True

    # --- talking to it

    def connect(self, **settings: Any) -> Client:
        """A connection; with settings it is identified."""
        client = Client(self.tcp_port, address=self.host.address)
        if settings:
            client.identify(**settings)
        return client

    def consumer(self, topic: str, channel: str, rdy_count: int | None = None, **settings: Any) -> Client:
        """A connection that consumes from the channel."""
        client = self.connect(**settings)
        client.sub(topic, channel, rdy_count)
        return client

    def pub(self, topic: str, *bodies: bytes) -> None:
        """Publish on a new connection, as `mpub` and `dpub`."""
        with self.connect() as client:
            client.pub(topic, *bodies)

    def mpub(self, topic: str, bodies: Sequence[bytes]) -> None:
        with self.connect() as client:
            client.mpub(topic, bodies)

    def dpub(self, topic: str, defer_ms: int, body: bytes) -> None:
        with self.connect() as client:
            client.dpub(topic, defer_ms, body)

    def stats(self, query: str = "") -> dict[str, Any]:
        answer = self.http("GET", f"/stats?format=json{query}")
        assert answer.status == 200, answer
        return answer.json()

    def topic_stats(self, topic: str) -> dict[str, Any] | None:
        """The topic in /stats, or None."""
        return next((t for t in self.stats()["topics"] or () if t["topic_name"] == topic), None)

    def channel_stats(self, topic: str, channel: str) -> dict[str, Any] | None:
        """The channel in /stats, or None."""
        of_topic = self.topic_stats(topic) or {"channels": ()}
        found = [c for c in of_topic["channels"] if c["channel_name"] == channel]
        return found[0] if found else None

    def consume(self, topic: str, channel: str, count: int) -> list[Message]:
        """Finish that many messages of a channel."""
        with self.consumer(topic, channel, 2500) as client:
            return client.consume(count)

    def consume_all(self, topic: str, channel: str) -> list[Message]:
        """Finish all messages of a channel but those that are deferred."""
        with self.consumer(topic, channel, 2500) as client:
            return client.drain(lambda: self.is_empty(topic, channel))

    def is_empty(self, topic: str, channel: str) -> bool:
        """True if no message of the channel waits or is in flight."""
        stats = self.channel_stats(topic, channel)
        return stats is not None and stats["depth"] == stats["in_flight_count"] == 0

    def wait_for_channel(
        self, topic: str, channel: str, deadline_s: float = 40.0, **counts: Any
    ) -> dict[str, Any]:
        """The channel's stats, when all `counts` (as depth=3) are as given."""

        seen: dict[str, Any] = {}

        def matches() -> bool:
            seen.clear()
            seen.update(self.channel_stats(topic, channel) or {})
            return bool(seen) and all(seen.get(name) == value for name, value in counts.items())

        try:
            wait_until(matches, deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{topic}/{channel}: wanted {counts}, stats are {seen}") from error
        return seen

    def create(self, topic: str, *channels: str) -> None:
        query = f"?topic={topic}".replace("#", "%23")
        self.post(f"/topic/create{query}")
        for channel in channels:
            self.post(f"/channel/create{query}&channel={channel.replace('#', '%23')}")

    def publish(self, topic: str, bodies: Sequence[bytes], batch: int = 20) -> None:
        """Publish messages in their order, `batch` with each MPUB."""
        with self.connect() as client:
            for start in range(0, len(bodies), batch):
                client.mpub(topic, bodies[start : start + batch])


class StoreNsqd(NsqdProcess):
    """An nsqd with a store. obstore has threads, so it is never forked."""

    is_executed = True
