"""A primary and its standbys as processes, and publishers that note what they were promised."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.ledger import History
from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.together import join_thread
from tests.support.wire import Client, Message, bodies, mpub, pub

DEADLINE_S = 40.0
NOWHERE = "127.0.0.1:1"  # no nsqd listens there


def standby_of(primary: NsqdProcess, data_path: Path, *flags: str, wait: bool = True) -> NsqdProcess:
    """Starts a standby, and waits until it has everything that there was."""
    standby = NsqdProcess(data_path, f"--standby-of=127.0.0.1:{primary.tcp_port}", *flags).start()
    if wait:
        try:
            wait_until_it_follows(standby)
        except BaseException:  # nobody else would end it
            standby.destroy()
            raise
    return standby


def lease_holders(directory: Path, names: str, *flags: str) -> list[NsqdProcess]:
    """An nsqd for each letter, on ports that it keeps, which they need to share a lease. None is started."""
    ports = port_pairs(len(names))
    return [
        NsqdProcess(directory / name, *flags, ports=pair) for name, pair in zip(names, ports, strict=True)
    ]


def figures_of(standby: NsqdProcess) -> dict[str, Any]:
    return standby.stats()["standby"]


def wait_until_it_follows(standby: NsqdProcess) -> None:
    wait_until(lambda: state_of(standby) == "following", DEADLINE_S, "the standby to follow")


def wait_until_it_has_all(primary: NsqdProcess) -> None:
    def has_all() -> bool:
        listed = primary.stats()["standbys"]["list"]
        return bool(listed) and all(each["is_following"] and not each["lag_bytes"] for each in listed)

    # The journals are written every 50 ms. What the loop answers after that is behind such a write, and the standbys
    # then count what they have not got of it.
    time.sleep(0.3)
    assert all(primary.is_healthy() for _ in range(2))
    wait_until(has_all, DEADLINE_S, "the standbys to have everything")


def promote(standby: NsqdProcess) -> None:
    """Promotes it, and waits until it serves."""
    standby.post("/promote")
    wait_until_it_serves(standby)


def state_of(nsqd: NsqdProcess) -> str:
    """The state of a standby; "primary" for one that is none, and empty for one that is between two roles."""
    with suppress(OSError, AssertionError):
        return nsqd.stats().get("standby", {"state": "primary"})["state"]
    return ""


def is_primary(nsqd: NsqdProcess) -> bool:
    return state_of(nsqd) == "primary"


def is_standby(nsqd: NsqdProcess) -> bool:
    return state_of(nsqd) not in ("primary", "")


def wait_for_a_primary(nsqds: Sequence[NsqdProcess]) -> NsqdProcess:
    """The first of these that serves."""
    return wait_until(lambda: [nsqd for nsqd in nsqds if is_primary(nsqd)], DEADLINE_S, "a primary")[0]


def wait_until_it_serves(nsqd: NsqdProcess) -> None:
    wait_until(lambda: is_primary(nsqd), DEADLINE_S, f"{nsqd.data_path.name} to serve")


def wait_until_it_gives_way(nsqd: NsqdProcess) -> None:
    wait_until(lambda: is_standby(nsqd), DEADLINE_S, f"{nsqd.data_path.name} to be a standby")


def consume_all(nsqd: NsqdProcess, topic: str, channel: str) -> list[bytes]:
    """Takes and finishes everything that a channel has."""
    return bodies(_consume_all(nsqd, topic, channel))


def _consume_all(nsqd: NsqdProcess, topic: str, channel: str) -> list[Message]:
    depth = nsqd.wait_for_channel(topic, channel)["depth"]
    with nsqd.consumer(topic, channel, 2000) as client:
        return client.consume(depth, DEADLINE_S)


def drain_into(history: History, nsqd: NsqdProcess, topic: str, channel: str) -> None:
    """Takes and finishes everything that a channel has, and notes it: then all that must come has come."""
    for message in _consume_all(nsqd, topic, channel):
        history.fin(history.received(topic, channel, message, "drain"))
    history.drained(topic, channel)


class LoadedPublisher(threading.Thread):
    """Publishes until the connection ends, and notes it in a history; `acknowledged` counts what was answered with OK."""

    def __init__(self, history: History, nsqd: NsqdProcess, topic: str, name: str, *, batch: int = 1) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self._history = history
        self._client: Client = nsqd.connect()
        self._topic = topic
        self._prefix = name
        self._batch = batch

    def run(self) -> None:
        number = 0
        try:
            while True:
                messages = [f"{self._prefix}-{number + i}".encode() for i in range(self._batch)]
                number += self._batch
                command = mpub(self._topic, messages) if self._batch > 1 else pub(self._topic, messages[0])
                publish = self._history.sending(self._topic, messages, self._prefix)
                answer = self._client.ask(command)
                if answer.data != b"OK":
                    self._history.refused(publish, answer.data.decode())
                    return
                self._history.ok(publish)
                self.acknowledged += len(messages)
        except Exception:  # noqa: BLE001 - the connection ended: that is what it waits for
            return
        finally:
            self._client.close()

    def end(self) -> None:
        """Return when its connection has ended."""
        join_thread(self, DEADLINE_S)
