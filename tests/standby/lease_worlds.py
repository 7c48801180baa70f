"""Where the lease of `Hosts` is, and what may happen to it: `EtcdWorld`, and `BucketWorld` with a proxy of faults in front."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import ClassVar, Protocol
from unittest import mock

from tests.support.bucket_faults import FaultProxy
from tests.support.buckets import MotoServer
from tests.support.etcd import Etcd
from tests.support.etcd_operator import EtcdOperator
from tests.support.network import Host

NAME = "orders"
_KEY = f"nsqd-py/{NAME}"
_PREFIX = "group"
_OBJECT = f"{_PREFIX}/{NAME}.lease"
_SOMEBODY = "somebody"


class LeaseWorld(Protocol):
    """The store of a lease.

    FOREIGN  the faults of tests/standby/faults.py that it cannot have
    flags    by which nsqds find it
    """

    FOREIGN: ClassVar[set[str]]
    flags: list[str]

    def freeze(self) -> None:
        """Let it answer no request."""

    def take_away(self) -> None:
        """Let it refuse all connections, or cut them."""

    def repair(self) -> None:
        """Let it answer again, and remove what nobody but its operator removes."""

    def delete_key(self) -> None:
        """Delete what holds the lease."""

    def overwrite_key(self, chance: random.Random) -> None:
        """Overwrite what holds the lease with something else."""

    def end(self) -> None: ...


class EtcdWorld:
    """A lease of an etcd with one member."""

    FOREIGN: ClassVar[set[str]] = set()

    def __init__(self, directory: Path, host: Host) -> None:
        self.etcd = Etcd(directory, host=host)
        self.etcd.wait_until_it_answers()
        self.operator = EtcdOperator(self.etcd.address)
        self.flags = [f"--lease={self.etcd.url(NAME)}"]

    def freeze(self) -> None:
        self.etcd.process.send_signal(signal.SIGSTOP)

    def take_away(self) -> None:
        self.etcd.process.kill()
        self.etcd.process.wait()

    def repair(self) -> None:
        if self.etcd.process.poll() is not None:
            self.etcd.start()
        self.etcd.process.send_signal(signal.SIGCONT)

    def delete_key(self) -> None:
        self.operator.delete(_KEY)

    def overwrite_key(self, chance: random.Random) -> None:
        """The value stays, or a lease ends it."""
        self.operator.put(_KEY, _SOMEBODY, chance.choice(("0", self.operator.grant(2))))

    def revoke_lease(self) -> None:
        pair = self.operator.pair(_KEY)
        if pair is not None and "lease" in pair:
            self.operator.revoke(pair["lease"])

    def end(self) -> None:
        self.etcd.end()


class BucketWorld:
    """A lease in a bucket of moto. This part of the requests of nsqds meets a fault, from the beginning on."""

    FOREIGN: ClassVar[set[str]] = {"lease-revoked"}

    def __init__(self, directory: Path, host: Host, seed: int = 0, fault_rate: float = 0.0) -> None:
        self.server = MotoServer(directory / "moto.log", host)
        self.bucket = self.server.make_bucket()
        self.proxy = FaultProxy(self.server.endpoint, host)
        self.proxy.__enter__()
        if fault_rate:
            self.proxy.at_random(seed, fault_rate)
            self.proxy.clock_off_s = -86400.0
        url = f"{self.bucket.url(_PREFIX)}/{NAME}"
        self.flags = [f"--lease={url}", f"--store-endpoint={self.proxy.endpoint}"]
        # The processes of nsqds inherit it.
        self._environment = mock.patch.dict(os.environ, self.bucket.environment(self.proxy.endpoint))
        self._environment.start()

    def freeze(self) -> None:
        self.server.process.send_signal(signal.SIGSTOP)

    def take_away(self) -> None:
        self.proxy.is_away = True

    def repair(self) -> None:
        self.server.process.send_signal(signal.SIGCONT)
        self.proxy.is_away = False
        found = self.bucket.get(_OBJECT)
        if found is not None and found.data == _SOMEBODY.encode():
            self.bucket.delete(_OBJECT)

    def delete_key(self) -> None:
        self.bucket.delete(_OBJECT)

    def overwrite_key(self, chance: random.Random) -> None:
        """No nsqd replaces it."""
        self.bucket.put(_OBJECT, _SOMEBODY.encode())

    def end(self) -> None:
        self._environment.stop()
        self.server.process.send_signal(signal.SIGCONT)
        self.proxy.close()
        self.server.close()
