"""Hosts for a cluster of processes, on one machine, and partitions between them.

`NamespaceNetwork` gives each host a network namespace, and joins them with a bridge on which the tests sit as
well. It needs root and iproute2. `LoopbackNetwork` gives each host an address in 127.0.0.0/8; there a TCP
connection that may be cut goes through a relay.

A partition is silence, the hard case: what is sent into it is lost, and neither side is notified.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import random
import selectors
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")

# No card has this address: the bridge floods what is sent to it, and nobody takes it.
NOBODY = "02:00:00:00:00:01"
NETWORK_VARIABLE = "CLUSTER_NETWORK"
ATTEMPTS = 20
CHUNK_BYTES = 1 << 16
_NETWORK_NAMESPACE = 0x40000000  # CLONE_NEWNET


class Host(NamedTuple):
    """Where a process runs: the address it listens on, and what stands before its command."""

    address: str
    command_prefix: tuple[str, ...] = ()

    def enter(self) -> None:
        """Move this thread, and the threads that it starts, to the host: their new sockets are in its namespace."""
        if self.command_prefix:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/run/netns/{self.command_prefix[-1]}") as namespace:
                if libc.setns(namespace.fileno(), _NETWORK_NAMESPACE):
                    raise OSError(ctypes.get_errno(), "setns")

    def call(self, function: Callable[[], T]) -> T:
        """Return what the function returns on this host; a socket that it makes stays there."""
        with ThreadPoolExecutor(1, initializer=self.enter) as pool:
            return pool.submit(function).result()


LOOPBACK = Host("127.0.0.1")


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def free_ports(count: int) -> list[int]:
    """Return free ports of this machine, for servers that come back where they were.

    They lie below the ports that the system gives to clients, which may take the port of a server that is away.
    """
    held: list[socket.socket] = []
    while len(held) < count:
        with contextlib.suppress(OSError):
            held.append(socket.create_server(("127.0.0.1", random.SystemRandom().randrange(10_000, 32_000))))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def port_pairs(count: int) -> list[tuple[int, int]]:
    """Return free ports for so many servers with two each."""
    ports = free_ports(2 * count)
    return list(zip(ports[::2], ports[1::2], strict=True))


class Network(Protocol):
    """Hosts that can all reach each other, and are reached from the tests, until they are cut apart."""

    def add_host(self) -> Host: ...

    def way(self, source: Host, target: Host, port: int) -> str:
        """The address:port at which `source` reaches a TCP port of `target`."""

    def cut(self, one: Host, other: Host) -> None:
        """Nothing gets from one to the other any more, in both directions, on established connections too."""

    def heal(self, one: Host, other: Host) -> None:
        """Undoes `cut`; what was never cut is left alone."""

    def close(self) -> None: ...


class Unavailable(Exception):
    """This machine cannot have such a network, for the reason given."""


def ip(*arguments: str) -> str:
    """Runs `ip`; what it prints. Raises Unavailable when it fails or is not there."""
    try:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=20)
    except OSError as error:
        raise Unavailable(f"ip: {error}") from error
    if done.returncode:
        raise Unavailable(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def open_network() -> Network:
    """Namespaces where the machine allows it, else loopback. CLUSTER_NETWORK=loopback or =namespaces decides."""
    wanted = os.environ.get(NETWORK_VARIABLE, "")
    if wanted == "loopback":
        return LoopbackNetwork()
    try:
        return NamespaceNetwork()
    except Unavailable:
        if wanted == "namespaces":
            raise
        return LoopbackNetwork()


class NamespaceNetwork:
    """A bridge and, for each host, a namespace with one card on it. Raises Unavailable."""

    def __init__(self) -> None:
        self._subnet, self._bridge = self._open_bridge()
        self._numbers = itertools.count(1)
        self._namespaces: dict[Host, str] = {}
        self._cut: set[tuple[Host, Host]] = set()
        self._slow: set[Host] = set()
        try:
            ip("addr", "add", f"{self._subnet}.254/24", "dev", self._bridge)
            ip("link", "set", self._bridge, "up")
            self.add_host()  # fails now where namespaces are not allowed
        except Unavailable:
            self.close()
            raise

    @staticmethod
    def _open_bridge() -> tuple[str, str]:
        """A private subnet that no card is in. The bridge is named after it, so that only one run can have it."""
        taken = json.loads(ip("-json", "-4", "addr", "show"))
        addresses = {info["local"] for card in taken for info in card["addr_info"]}
        for _ in range(ATTEMPTS):
            second, third = random.randrange(64, 256), random.randrange(256)
            subnet, bridge = f"10.{second}.{third}", f"nsq-{second}-{third}"
            if any(address.startswith(f"10.{second}.") for address in addresses):
                continue
            with contextlib.suppress(Unavailable):
                ip("link", "add", bridge, "type", "bridge")
                return subnet, bridge
        raise Unavailable("no bridge can be made: is this root?")

    def add_host(self) -> Host:
        number = next(self._numbers)
        namespace = f"{self._bridge}-{number}"
        host = Host(f"{self._subnet}.{number}", ("ip", "netns", "exec", namespace))
        ip("netns", "add", namespace)
        self._namespaces[host] = namespace
        ip("link", "add", namespace, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("link", "set", namespace, "master", self._bridge, "up")
        ip("-n", namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
        ip("-n", namespace, "link", "set", "lo", "up")
        ip("-n", namespace, "link", "set", "eth0", "up")
        return host

    def way(self, source: Host, target: Host, port: int) -> str:
        return f"{target.address}:{port}"

    def cut(self, one: Host, other: Host) -> None:
        self.silence(one, other)
        self.silence(other, one)

    def silence(self, source: Host, target: Host) -> None:
        """Lose what `source` sends to `target`, and nothing of what comes back."""
        self._cut.add((source, target))
        # Not a blackhole route: that one gives the sender an error.
        self._neighbour("replace", source, target, "lladdr", NOBODY, "nud", "permanent")

    def heal(self, one: Host, other: Host) -> None:
        for way in ((one, other), (other, one)):
            if way in self._cut:
                self._cut.remove(way)
                self._neighbour("del", *way)

    def slow_down(self, source: Host, rate: str) -> None:
        """Let everything that `source` sends share this rate, as "200kbit"."""
        self._slow.add(source)
        self._traffic("add", source, "tbf", "rate", rate, "burst", "4kb", "latency", "2s")

    def heal_all(self) -> None:
        """Undo all of `cut`, `silence` and `slow_down`."""
        for one, other in list(self._cut):
            self.heal(one, other)
        while self._slow:
            self._traffic("del", self._slow.pop())

    def _traffic(self, verb: str, host: Host, *settings: str) -> None:
        ip("netns", "exec", self._namespaces[host], "tc", "qdisc", verb, "dev", "eth0", "root", *settings)

    def _neighbour(self, verb: str, here: Host, there: Host, *settings: str) -> None:
        ip("-n", self._namespaces[here], "neigh", verb, there.address, "dev", "eth0", *settings)

    def close(self) -> None:
        for namespace in self._namespaces.values():
            # The cards first: a namespace may outlive its name for a while.
            for order in (("link", "del", namespace), ("netns", "del", namespace)):
                with contextlib.suppress(Unavailable):
                    ip(*order)
        self._namespaces.clear()
        ip("link", "del", self._bridge)


class LoopbackNetwork:
    """A /24 of 127.0.0.0/8. Only connections through `way` can be cut, new ones are then taken and not answered."""

    def __init__(self) -> None:
        self._subnet, self._claim = self._claim_subnet()
        self._numbers = itertools.count(1)
        self._relays: dict[frozenset[Host], list[Relay]] = {}
        self._ways: dict[tuple[Host, Host, int], Relay] = {}

    @staticmethod
    def _claim_subnet() -> tuple[str, socket.socket]:
        """A subnet, and the socket that keeps other runs out of it."""
        for _ in range(ATTEMPTS):
            subnet = f"127.{random.randrange(1, 255)}.{random.randrange(256)}"
            with contextlib.suppress(OSError):
                return subnet, socket.create_server((f"{subnet}.254", 4150))
        raise Unavailable("no free subnet of 127.0.0.0/8")

    def add_host(self) -> Host:
        return Host(f"{self._subnet}.{next(self._numbers)}")

    def way(self, source: Host, target: Host, port: int) -> str:
        way = (source, target, port)
        if way not in self._ways:
            address = f"{self._subnet}.{next(self._numbers)}"
            self._ways[way] = Relay((address, port), (target.address, port))
            self._relays.setdefault(frozenset((source, target)), []).append(self._ways[way])
        return f"{self._ways[way].address}:{port}"

    def cut(self, one: Host, other: Host) -> None:
        for relay in self._relays.get(frozenset((one, other)), ()):
            relay.hold()

    def heal(self, one: Host, other: Host) -> None:
        for relay in self._relays.get(frozenset((one, other)), ()):
            relay.go_on()

    def close(self) -> None:
        for relay in self._ways.values():
            relay.close()
        self._claim.close()


class Relay:
    """Hands TCP connections on. While it holds, it accepts, and neither reads nor tells anyone of an end."""

    def __init__(self, address: tuple[str, int], target: tuple[str, int]) -> None:
        self.address = address[0]
        self._target = target
        self._selector = selectors.DefaultSelector()
        self._flowing = threading.Event()
        self._flowing.set()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._listener = socket.create_server(address)
        self._peers: dict[socket.socket, socket.socket] = {}
        for source in (self._wake_reader, self._listener):
            self._selector.register(source, selectors.EVENT_READ)
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def hold(self) -> None:
        self._flowing.clear()
        self._wake_writer.send(b"x")

    def go_on(self) -> None:
        self._flowing.set()

    def close(self) -> None:
        self._is_closing = True
        with contextlib.suppress(OSError):  # the thread may have ended, and closed it
            self._wake_writer.send(b"x")
        self._flowing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_closing:
            for source in self._ready():
                if not self._flowing.wait() or self._is_closing:
                    break
                if source is self._listener:
                    self._accept()
                elif source is self._wake_reader:
                    source.recv(CHUNK_BYTES)
                elif source in self._peers:
                    self._pass_on(source)
        for source in (*self._peers, self._listener, self._wake_reader, self._wake_writer):
            source.close()
        self._selector.close()

    def _ready(self) -> Iterator[socket.socket]:
        for key, _ in self._selector.select():
            yield key.fileobj

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target, timeout=5)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if data := source.recv(CHUNK_BYTES):
                self._peers[source].sendall(data)
                return
        for end in (source, self._peers[source]):
            del self._peers[end]
            self._selector.unregister(end)
            end.close()
