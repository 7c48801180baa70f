"""Where the lease of `Hosts` is, and what may happen to it: `EtcdWorld`, and `BucketWorld` with a proxy of faults in front.

`StoreWorld` has a store of the messages too.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol
from unittest import mock

from nsqd_py.objects.opening import open_objects
from tests.support.bucket_faults import FaultProxy
from tests.support.buckets import MotoServer
from tests.support.etcd import Etcd
from tests.support.etcd_operator import EtcdOperator
from tests.support.network import Host
from tests.torture.store_losses import Written

NAME = "orders"
_KEY = f"nsqd-py/{NAME}"
_PREFIX = "group"
_OBJECT = f"{_PREFIX}/{NAME}.lease"
_SOMEBODY = "somebody"
STORE_INTERVAL_S = 0.3


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

    def revoke_lease(self) -> None:
        """End the lease before its time, if `lease-revoked` is not foreign."""

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

    def revoke_lease(self) -> None:
        raise NotImplementedError("a lease in a bucket cannot be revoked")

    def end(self) -> None:
        self._environment.stop()
        self.server.process.send_signal(signal.SIGCONT)
        self.proxy.close()
        self.server.close()


class StoreWorld:
    """A lease, and a store in a bucket: that of the lease, if the lease is in one."""

    def __init__(
        self, directory: Path, host: Host, make_lease: Callable[[Path, Host], LeaseWorld], acks: int
    ) -> None:
        self._lease = lease = make_lease(directory, host)
        self.FOREIGN = lease.FOREIGN
        self._beside = None if isinstance(lease, BucketWorld) else BucketWorld(directory, host)
        self._bucket = lease if isinstance(lease, BucketWorld) else self._beside
        self.url = self._bucket.bucket.url("store")
        store_flags = [
            f"--store={self.url}",
            f"--store-acks={acks}",
            f"--store-interval={STORE_INTERVAL_S * 1000:.0f}ms",
            f"--store-endpoint={self._bucket.proxy.endpoint}",
        ]
        self.flags = [flag for flag in lease.flags if flag not in store_flags] + store_flags
        self.freeze = lease.freeze
        self.take_away = lease.take_away
        self.repair = lease.repair
        self.delete_key = lease.delete_key
        self.overwrite_key = lease.overwrite_key
        self.revoke_lease = lease.revoke_lease

    def two_writers(self) -> list[str]:
        """Return the rounds of the store which show that an epoch had two writers, or went on after a later one."""
        self._bucket.proxy.stop_faults()
        return Written.in_store(open_objects(self.url, self._bucket.server.endpoint)).two_writers

    def end(self) -> None:
        self._lease.end()
        if self._beside is not None:
            self._beside.end()
