"""A lease's store, nsqlookupd, clients and two nsqds that share the lease, each on a host that can be cut off from the others."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.standby.lease_worlds import EtcdWorld, LeaseWorld
from tests.support import ledger_clients
from tests.support.ledger import History, lost_so_far
from tests.support.ledger.serving import Serving
from tests.support.member import secret_file
from tests.support.network import Host, NamespaceNetwork
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.standby_processes import figures_of
from tests.support.taped_nsqd import TapedNsqd
from tests.support.together import join_thread

TOPIC, CHANNELS = "failovers", ("ledger", "library")
DEADLINE_S = 90.0
_DISK_SIZE = "96m"
_PORTS = (4150, 4151)
_LOOK_EVERY_S = 0.05


class Hosts:
    """The hosts `store`, `lookup` and `clients`, and those of the two nsqds. Raises Unavailable."""

    def __init__(
        self,
        directory: Path,
        ttl_s: int,
        *flags: str,
        make_world: Callable[[Path, Host], LeaseWorld] = EtcdWorld,
    ) -> None:
        self.network = NamespaceNetwork()
        self.history = History(directory / "history.jsonl")
        self.serving = Serving()
        self.history.watch(self.serving.see)
        self.clients: list[ledger_clients.LedgerClient] = []
        self.nsqds: list[TapedNsqd] = []
        self._mounted: list[Path] = []
        add = self.network.add_host
        self.store, self.lookup, self.client_host = add(), add(), add()
        self.world = make_world(directory, self.store)
        self.lookupd = NsqlookupdProcess(directory / "nsqlookupd.log", host=self.lookup)
        try:
            self._start(directory, ttl_s, flags)
        except BaseException:
            self.end()
            raise

    def _start(self, directory: Path, ttl_s: int, flags: tuple[str, ...]) -> None:
        self.lookupd.start()
        secret = secret_file(directory / "secret")
        for number, name in enumerate("ab"):
            path = directory / name
            path.mkdir()
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "nsqd", str(path)], check=True
            )
            self._mounted.append(path)
            nsqd = TapedNsqd(
                path,
                *self.world.flags,
                f"--lease-ttl={ttl_s}s",
                "--standby-acks=1",
                "--standby-timeout=2s",
                "--msg-timeout=5s",
                "--max-bytes-per-file=1048576",
                f"--node-id={number}",
                f"--lookupd-tcp-address={self.lookup.address}:{self.lookupd.tcp_port}",
                secret,
                *flags,
                host=self.network.add_host(),
                ports=_PORTS,
            )
            self.nsqds.append(nsqd)
            nsqd.start()

    def other(self, nsqd: NsqdProcess) -> TapedNsqd:
        return next(one for one in self.nsqds if one is not nsqd)

    def primary(self) -> TapedNsqd | None:
        """Return the nsqd that says it is the primary, or None."""
        return next((nsqd for nsqd in self.nsqds if role(nsqd) == "primary"), None)

    def wait_until_whole(self) -> tuple[TapedNsqd, TapedNsqd]:
        """Wait for a primary and a standby that follows it, and return them."""

        def whole() -> tuple[TapedNsqd, TapedNsqd] | None:
            primary = self.primary()
            if primary is None:
                return None
            other = self.other(primary)
            is_following = role(other) == "standby" and figures_of(other)["state"] == "following"
            return (primary, other) if is_following else None

        found = wait_until(whole, DEADLINE_S, "a primary and its standby")
        return found

    def wait_until_it_serves(self, nsqd: NsqdProcess) -> None:
        wait_until(lambda: role(nsqd) == "primary", DEADLINE_S, "the other nsqd to serve")

    # ---- clients

    def start_clients(self) -> None:
        """Create the topic, and let publishers and consumers begin."""
        primary, _ = self.wait_until_whole()
        primary.create(TOPIC, *CHANNELS)
        self.history.created(TOPIC, *CHANNELS)
        host, history = self.client_host, self.history
        addresses: list[ledger_clients.Address] = [(nsqd.host.address, *_PORTS) for nsqd in self.nsqds]

        def lookupd() -> str:
            return self.lookupd.http_address

        first, second = CHANNELS
        self.clients = [
            ledger_clients.LedgerConsumer(host, history, "finds", TOPIC, first, lookupd),
            ledger_clients.LibraryConsumer(host, history, "consumer", TOPIC, second, lookupd),
            ledger_clients.LedgerPublisher(host, history, "either", TOPIC, addresses),
            # These stay with one nsqd: they see at once when it serves, whoever else does.
            *(
                ledger_clients.StayingConsumer(host, history, f"c{number}", TOPIC, first, one)
                for number, one in enumerate(addresses)
            ),
            *(
                ledger_clients.LedgerPublisher(host, history, f"p{number}", TOPIC, [one])
                for number, one in enumerate(addresses)
            ),
            ledger_clients.LedgerHttpPublisher(host, history, "http", TOPIC, addresses),
            ledger_clients.LibraryPublisher(host, history, "producer", TOPIC, addresses),
        ]
        for client in self.clients:
            client.start()

    def stop_publishers(self) -> None:
        publishers = [
            one
            for one in self.clients
            if isinstance(one, ledger_clients.LedgerPublisher | ledger_clients.LibraryPublisher)
        ]
        for publisher in publishers:
            publisher.is_over.set()
        for publisher in publishers:
            join_thread(publisher, DEADLINE_S)

    def wait_until_received(self) -> None:
        """Return when everything that was acknowledged has been received; what is lost at the deadline is counted."""
        end_s = time.monotonic() + DEADLINE_S
        while lost_so_far(self.history) and time.monotonic() < end_s:
            time.sleep(0.5)

    # ---- what is broken, and repaired

    def everybody_but(self, nsqd: NsqdProcess) -> list[Host]:
        return [self.store, self.lookup, self.client_host, self.other(nsqd).host]

    def repair(self) -> None:
        """Mend networks, disks and processes, and start what has ended."""
        self.network.heal_all()
        self.world.repair()
        for nsqd in self.nsqds:
            nsqd.free_disk()
            nsqd.set_rules()
            if nsqd.is_running:
                nsqd.signal(signal.SIGCONT)
            else:
                nsqd.launch()
        for nsqd in self.nsqds:
            nsqd.wait_until_it_listens()

    # ---- the end

    def end(self) -> None:
        try:
            for client in self.clients:
                client.is_over.set()
            for client in self.clients:
                join_thread(client, DEADLINE_S)
        finally:
            for process in (*self.nsqds, self.lookupd):
                if process.is_running:
                    process.signal(signal.SIGCONT)
                process.destroy()
            self.world.end()
            for path in self._mounted:
                subprocess.run(["umount", "--lazy", str(path)], check=False)
            self.network.close()


def role(nsqd: NsqdProcess) -> str:
    """Return "primary" or "standby"; empty while it is between two roles, frozen, or ended."""
    time.sleep(_LOOK_EVERY_S)
    if not nsqd.is_running:
        return ""
    connection = http.client.HTTPConnection(nsqd.host.address, _PORTS[1], timeout=2)
    try:
        connection.request("GET", "/stats?format=json&topic=none")
        return "standby" if "standby" in json.loads(connection.getresponse().read()) else "primary"
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
