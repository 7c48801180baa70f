"""What happens to the two nsqds of `Hosts`, their store, their disks and their networks. Each fault ends a primary's
service, but for those that say otherwise; afterwards, `Hosts.repair` repairs what is broken.

A fault returns the time at which it began, from which the gap in the service counts; None if that is when it is over.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from functools import wraps
from typing import NamedTuple

from tests.standby.hosts import DEADLINE_S, Hosts
from tests.support.disk_calls import SYNCS, WRITES
from tests.support.network import Host
from tests.support.nsqd_process import wait_until
from tests.support.taped_nsqd import TapedNsqd

_REFUSED_AFTER_S = 2.5  # a little more than --standby-timeout
_SLOW_RATE = "256kbit"


class Scene(NamedTuple):
    """Who takes part in a fault."""

    hosts: Hosts
    primary: TapedNsqd
    standby: TapedNsqd
    chance: random.Random

    def silence(self, source: Host, target: Host) -> None:
        self.hosts.network.silence(source, target)

    def wait_for_the_other(self) -> None:
        self.hosts.wait_until_it_serves(self.standby)

    def rest(self, longest_s: float) -> None:
        """The moment of the next step is random."""
        time.sleep(self.chance.uniform(0.0, longest_s))


def the_other_takes_over(happen: Callable[[Scene], None]) -> Callable[[Scene], float]:
    """Make a fault of what happens to the primary: wait until the standby serves in its place."""

    @wraps(happen)
    def fault(scene: Scene) -> float:
        began_s = time.monotonic()
        happen(scene)
        scene.wait_for_the_other()
        return began_s

    return fault


# ---- processes


@the_other_takes_over
def kill(scene: Scene) -> None:
    scene.primary.kill()


@the_other_takes_over
def stop(scene: Scene) -> None:
    """SIGTERM."""
    scene.primary.stop()


@the_other_takes_over
def freeze(scene: Scene) -> None:
    """SIGSTOP, until the other one serves."""
    scene.primary.signal(signal.SIGSTOP)


def kill_both(scene: Scene) -> None:
    """The standby dies too, at a random moment of its promotion."""
    scene.primary.kill()
    scene.rest(5.0)
    scene.standby.kill()


@the_other_takes_over
def power_cut(scene: Scene) -> None:
    """Of the primary: it keeps what it has synced, and perhaps more."""
    scene.primary.cut_power(scene.chance)


def power_cut_both(scene: Scene) -> None:
    scene.primary.signal(signal.SIGSTOP)  # nearly at the same time
    scene.standby.cut_power(scene.chance)
    scene.primary.cut_power(scene.chance)


@the_other_takes_over
def destroyed(scene: Scene) -> None:
    """The primary is gone with its disk."""
    scene.primary.kill()
    scene.primary.wipe_disk()


def destroyed_alone(scene: Scene) -> float:
    """The standby does not hear the primary for a while; then the primary is gone with its disk.

    What was acknowledged in the meantime without a standby, only a store has.
    """
    scene.silence(scene.primary.host, scene.standby.host)
    scene.rest(2 * _REFUSED_AFTER_S)
    return destroyed(scene)


# ---- the store


def store_frozen(scene: Scene) -> None:
    """The store answers nobody until the primary has given up."""
    scene.hosts.world.freeze()
    _wait_until_nobody_serves(scene)


def store_killed(scene: Scene) -> None:
    """The store is away until the primary has given up."""
    scene.hosts.world.take_away()
    _wait_until_nobody_serves(scene)


def _wait_until_nobody_serves(scene: Scene) -> None:
    wait_until(lambda: scene.hosts.primary() is None, DEADLINE_S, "the primary to stop serving")


def key_deleted(scene: Scene) -> None:
    """Somebody deletes the key of the lease. Either nsqd may be the next primary."""
    scene.hosts.world.delete_key()


def key_overwritten(scene: Scene) -> None:
    """Somebody overwrites the key of the lease."""
    scene.hosts.world.overwrite_key(scene.chance)


def lease_revoked(scene: Scene) -> float | None:
    """Somebody revokes the lease; the primary may die too."""
    scene.hosts.world.revoke_lease()
    return kill(scene) if scene.chance.random() < 0.3 else None


# ---- networks


@the_other_takes_over
def isolated(scene: Scene) -> None:
    """The primary is cut off from everybody."""
    for host in scene.hosts.everybody_but(scene.primary):
        scene.hosts.network.cut(scene.primary.host, host)


@the_other_takes_over
def unheard(scene: Scene) -> None:
    """Nothing that the primary sends arrives anywhere."""
    for host in scene.hosts.everybody_but(scene.primary):
        scene.silence(scene.primary.host, host)


@the_other_takes_over
def deaf(scene: Scene) -> None:
    """Nothing arrives at the primary."""
    for host in scene.hosts.everybody_but(scene.primary):
        scene.silence(host, scene.primary.host)


@the_other_takes_over
def no_store(scene: Scene) -> None:
    """The primary is cut off from the store only: clients and its standby still reach it."""
    scene.hosts.network.cut(scene.primary.host, scene.hosts.store)


@the_other_takes_over
def half_store(scene: Scene) -> None:
    """Between the primary and the store, one direction is lost."""
    ways = [(scene.primary.host, scene.hosts.store), (scene.hosts.store, scene.primary.host)]
    scene.silence(*scene.chance.choice(ways))


def no_standby(scene: Scene) -> float:
    """The primary is cut off from its standby only, in one direction or in both; then it dies."""
    hosts = [scene.primary.host, scene.standby.host]
    scene.chance.shuffle(hosts)
    scene.silence(hosts[0], hosts[1])
    if scene.chance.random() < 0.5:
        scene.silence(hosts[1], hosts[0])
    scene.rest(2 * _REFUSED_AFTER_S)
    return kill(scene)


def no_clients(scene: Scene) -> None:
    """Clients do not reach the primary for a while. It stays the primary."""
    scene.hosts.network.cut(scene.primary.host, scene.hosts.client_host)
    scene.rest(5.0)


def slow_link(scene: Scene) -> float:
    """What the primary sends goes at a few messages a second; then it dies."""
    scene.hosts.network.slow_down(scene.primary.host, _SLOW_RATE)
    scene.rest(3.0)
    return kill(scene)


# ---- the standby


def slow_standby(scene: Scene) -> float:
    """The standby is frozen for a while; the primary dies soon after."""
    scene.standby.signal(signal.SIGSTOP)
    scene.rest(2 * _REFUSED_AFTER_S)
    scene.standby.signal(signal.SIGCONT)
    scene.rest(0.3)
    return kill(scene)


def slow_disk(scene: Scene) -> float:
    """Each call on the standby's disk takes long; the primary dies in the meantime."""
    delay_s = scene.chance.uniform(0.02, 0.15)
    scene.standby.set_rules(*({"call": call, "delay_s": delay_s} for call in (*WRITES, *SYNCS)))
    scene.rest(3.0)
    return kill(scene)


def full_disk(scene: Scene) -> float | None:
    """The standby's disk is full for a while. The primary dies before or after there is space again."""
    scene.standby.fill_disk()
    scene.rest(2 * _REFUSED_AFTER_S)
    if scene.chance.random() < 0.5:
        scene.primary.kill()
        scene.rest(4.0)
        scene.standby.free_disk()
        return None
    scene.standby.free_disk()
    scene.rest(1.0)
    return kill(scene)


FAULTS: dict[str, Callable[[Scene], float | None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        kill,
        stop,
        freeze,
        kill_both,
        power_cut,
        power_cut_both,
        destroyed,
        destroyed_alone,
        store_frozen,
        store_killed,
        key_deleted,
        key_overwritten,
        lease_revoked,
        isolated,
        unheard,
        deaf,
        no_store,
        half_store,
        no_standby,
        no_clients,
        slow_link,
        slow_standby,
        slow_disk,
        full_disk,
    )
}
STAYS = {"no-clients"}  # the primary stays the same
FREEZES = {"freeze"}
