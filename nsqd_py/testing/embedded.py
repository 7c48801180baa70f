"""nsqd and nsqlookupd as child processes of this one, on free ports of 127.0.0.1.

`Nsqd` and `Lookupd` are one process each, `EmbeddedCluster` is several, and `embedded` starts either.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, overload
from urllib.parse import urlencode

from nsqd_py.protocol.outgoing import mpub_body

_LISTENING = re.compile(r"^(TCP|HTTP) (\S+:\d+)\n", re.MULTILINE)
_TIMEOUT_S = 30.0  # of a start, a stop and a request
_POLL_INTERVAL_S = 0.005
_HOST = "127.0.0.1"

_Path = str | os.PathLike[str]


def _wait(condition: Callable[[], bool], timeout_s: float, problem: Callable[[], str]) -> None:
    """Wait for a condition. Raises TimeoutError with the text of `problem` if it does not hold in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(problem())
        time.sleep(_POLL_INTERVAL_S)


def _end(
    processes: list[subprocess.Popen[bytes]], owner: int, signal_number: int, folder: Path | None = None
) -> None:
    """End the process with the signal, and remove the folder. Do nothing in a fork of the process that started it."""
    if os.getpid() != owner:
        return
    while processes:
        process = processes.pop()
        process.send_signal(signal_number)
        try:
            process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


# ---- one process


class EmbeddedDaemon:
    """A daemon in a child process. It has the same ports and data after `stop`, `kill` and `restart`.

    It stops when `close` is called, at the end of a `with` block, when nothing refers to it any more, and when this
    process ends, even by SIGKILL.
    """

    _module: str
    _name: str

    def __init__(self, *flags: str, data_path: _Path | None = None) -> None:
        """Start the daemon. Without a data path, its data is in a temporary folder, which `close` removes."""
        # No TemporaryDirectory: that of a forked child would remove the parent's folder when the child ends.
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self._name}-"))
        self._data_path = self._folder if data_path is None else Path(data_path)
        # The current process. A list, so that the finalizer has it without this object.
        self._processes: list[subprocess.Popen[bytes]] = []
        self._owner = os.getpid()
        self._flags = flags
        self._addresses: dict[str, str] = {}
        self._finalizer = weakref.finalize(
            self, _end, self._processes, self._owner, signal.SIGTERM, self._folder
        )
        self._log_path = self._folder / f"{self._name}.log"
        self._log_path.touch()
        self._addresses_path = self._folder / f"{self._name}.addresses"
        self._launch()

    @property
    def tcp_address(self) -> str:
        """`host:port` of the TCP protocol."""
        return self._address("TCP")

    @property
    def http_address(self) -> str:
        """`host:port` of the HTTP paths."""
        return self._address("HTTP")

    @property
    def running(self) -> bool:
        """True while the process runs."""
        return any(process.poll() is None for process in self._processes)

    def log_lines(self, count: int = 20) -> list[str]:
        """Return the last `count` lines of its log."""
        return self._log_path.read_text(errors="replace").splitlines()[-count:]

    def get(self, path: str) -> Any:
        """Return the JSON that an HTTP path answers. Raises RuntimeError if it answers an error."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """Return the text that an HTTP path answers. Raises RuntimeError if it answers an error."""
        return self._request("GET", path).decode(errors="replace")

    def post(self, path: str, body: bytes = b"") -> bytes:
        """Return what an HTTP path answers to a POST. Raises RuntimeError if it answers an error."""
        return self._request("POST", path, body)

    def stop(self) -> None:
        """Stop it as SIGTERM does, and wait for its end. Its data stays."""
        _end(self._processes, self._owner, signal.SIGTERM)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would. Its data stays."""
        _end(self._processes, self._owner, signal.SIGKILL)

    def restart(self) -> None:
        """Restart it with the same ports and data; stop it first if it runs."""
        self.stop()
        self._launch()
        self.wait_until_ready()

    def close(self) -> None:
        """Stop it, and remove its temporary folder."""
        self._finalizer()

    def wait_until_ready(self) -> None:
        """Wait until it listens. Raises RuntimeError with the end of its log if it ended instead."""

        def ready() -> bool:
            if not self.running:
                raise RuntimeError(f"{self._name} did not start:\n" + "\n".join(self.log_lines()))
            found = {}
            with suppress(FileNotFoundError):
                found = dict(_LISTENING.findall(self._addresses_path.read_text()))
            self._addresses = found if len(found) == 2 else {}
            return bool(self._addresses)

        _wait(
            ready,
            _TIMEOUT_S,
            lambda: f"{self._name} does not listen after {_TIMEOUT_S:g} s. {self._log_tail()}",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def _log_tail(self) -> str:
        return "\n".join(["Last lines of its log:", *self.log_lines()])

    def _address(self, protocol: str) -> str:
        if not self._addresses:
            self.wait_until_ready()
        return self._addresses[protocol]

    def _launch(self) -> None:
        if not self._finalizer.alive:
            raise RuntimeError(f"this {self._name} is closed; start another one with nsqd_py.embedded()")
        tcp, http_ = (self._addresses.get(name, f"{_HOST}:0") for name in ("TCP", "HTTP"))
        # -P: the files of the current folder must not hide modules.
        command = [
            sys.executable,
            "-P",
            "-m",
            "nsqd_py.testing.child",
            str(self._addresses_path),
            self._module,
        ]
        command.append(f"--broadcast-address={_HOST}")
        command += [f"--tcp-address={tcp}", f"--http-address={http_}", *self._arguments(), *self._flags]
        self._addresses = {}
        self._addresses_path.unlink(missing_ok=True)
        with self._log_path.open("ab") as log:
            # In another session: Ctrl-C in a terminal or a notebook must not reach it.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
            self._processes.append(process)

    def _arguments(self) -> list[str]:
        return []

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        try:
            with closing(http.client.HTTPConnection(self.http_address, timeout=_TIMEOUT_S)) as connection:
                connection.request(method, path, body)
                answer = connection.getresponse()
                content = answer.read()
            if answer.status != 200:
                text = content.decode(errors="replace")
                raise RuntimeError(f"{self._name} answered {answer.status} to {method} {path}: {text}")
        except (OSError, http.client.HTTPException, RuntimeError) as error:
            error.add_note(self._log_tail())
            raise
        return content


class Lookupd(EmbeddedDaemon):
    """An nsqlookupd in a child process."""

    _module = "nsq_apps.nsqlookupd"
    _name = "nsqlookupd"


class Nsqd(EmbeddedDaemon):
    """An nsqd in a child process."""

    _module = "nsq_apps.nsqd"
    _name = "nsqd"

    @property
    def data_path(self) -> Path:
        """The folder with its data."""
        return self._data_path

    def publish(self, topic: str, *bodies: bytes | str, defer_ms: int = 0) -> None:
        """Publish messages: all or none, or one by one if they are deferred.

        Raises RuntimeError with nsqd's answer if it refuses them.
        """
        encoded = [body.encode() if isinstance(body, str) else body for body in bodies]
        if defer_ms:
            for body in encoded:
                self.post("/pub?" + urlencode({"topic": topic, "defer": defer_ms}), body)
            return
        self.post("/mpub?" + urlencode({"topic": topic, "binary": "true"}), mpub_body(encoded))

    def stats(self, topic: str = "", channel: str = "") -> dict[str, Any]:
        """Return nsqd's /stats, of all topics or of one."""
        query = {"format": "json", "topic": topic, "channel": channel}
        answer: dict[str, Any] = self.get(
            "/stats?" + urlencode({key: text for key, text in query.items() if text})
        )
        return answer

    def depth(self, topic: str, channel: str | None = None) -> int:
        """Return the number of messages that wait in the topic, or in one of its channels; 0 if it does not exist."""
        topics = self.stats(topic, channel or "")["topics"] or ()  # null if it does not exist
        if channel is None:
            rows = topics
        else:
            rows = [row for each in topics for row in each["channels"]]
        return sum(row["depth"] for row in rows)

    def wait_for_depth(
        self, topic: str, depth: int, channel: str | None = None, timeout_s: float = 10.0
    ) -> None:
        """Wait until exactly `depth` messages wait in the topic, or in one of its channels.

        Messages in flight and deferred ones are not part of the depth. Raises TimeoutError.
        """
        depths: list[int] = []

        def reached() -> bool:
            depths[:] = [self.depth(topic, channel)]
            return depths == [depth]

        name = topic if channel is None else f"{topic}/{channel}"
        _wait(
            reached,
            timeout_s,
            lambda: f"the depth of {name} is {depths[0]} after {timeout_s:g} s, not {depth}",
        )

    def _arguments(self) -> list[str]:
        return [f"--data-path={self.data_path}"]


# ---- several processes


class EmbeddedCluster:
    """Several nsqds, with an nsqlookupd or without."""

    def __init__(self, *flags: str, nsqds: int, lookupd: bool, data_path: _Path | None = None) -> None:
        if nsqds < 1:
            raise ValueError(f"nsqds must be at least 1, got {nsqds}")
        self.lookupd: Lookupd | None = None
        self.nsqds: tuple[Nsqd, ...] = ()
        try:
            if lookupd:
                self.lookupd = Lookupd()
                flags = (f"--lookupd-tcp-address={self.lookupd.tcp_address}", *flags)
            for number in range(1, nsqds + 1):
                path = None if data_path is None else Path(data_path, f"nsqd-{number}")
                if path is not None:
                    path.mkdir(parents=True, exist_ok=True)
                self.nsqds += (Nsqd(*flags, data_path=path),)
            for nsqd in self.nsqds:
                nsqd.wait_until_ready()
            if self.lookupd is not None:
                self._wait_for_registrations(self.lookupd)
        except BaseException:
            self.close()
            raise

    @property
    def lookupd_http_address(self) -> str:
        """`host:port` that consumers ask. Raises RuntimeError if the cluster has no nsqlookupd."""
        if self.lookupd is None:
            raise RuntimeError("this cluster has no nsqlookupd: start it with lookupd=True")
        return self.lookupd.http_address

    @property
    def nsqd_tcp_addresses(self) -> list[str]:
        """`host:port` of each nsqd."""
        return [nsqd.tcp_address for nsqd in self.nsqds]

    def close(self) -> None:
        """Stop all processes, and remove their temporary folders."""
        for daemon in (*self.nsqds, self.lookupd):
            if daemon is not None:
                daemon.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def _wait_for_registrations(self, lookupd: Lookupd) -> None:
        ports = {int(nsqd.tcp_address.rpartition(":")[2]) for nsqd in self.nsqds}

        def known() -> bool:
            with suppress(OSError):
                return ports <= {producer["tcp_port"] for producer in lookupd.get("/nodes")["producers"]}
            return False

        _wait(
            known,
            _TIMEOUT_S,
            lambda: "nsqlookupd does not know all nsqds: " + "; ".join(lookupd.log_lines(3)),
        )


@overload
def embedded(*flags: str, data_path: _Path | None = None) -> Nsqd: ...
@overload
def embedded(
    *flags: str, nsqds: int = 1, lookupd: Literal[True], data_path: _Path | None = None
) -> EmbeddedCluster: ...
@overload
def embedded(
    *flags: str, nsqds: int, lookupd: bool = False, data_path: _Path | None = None
) -> EmbeddedCluster: ...
def embedded(
    *flags: str, nsqds: int | None = None, lookupd: bool = False, data_path: _Path | None = None
) -> Nsqd | EmbeddedCluster:
    """Start an nsqd in a child process, on free ports; with `nsqds` or `lookupd`, a cluster.

    `flags` are nsqd's, for example "--msg-timeout=1s". Messages lie in `data_path` (a cluster makes a folder in it for
    each nsqd), by default in a temporary folder. Raises RuntimeError with nsqd's log if it does not start.
    """
    if lookupd or nsqds is not None:
        return EmbeddedCluster(
            *flags, nsqds=1 if nsqds is None else nsqds, lookupd=lookupd, data_path=data_path
        )
    nsqd = Nsqd(*flags, data_path=data_path)
    try:
        nsqd.wait_until_ready()
    except BaseException:
        nsqd.close()
        raise
    return nsqd
