"""Three nsqds and two nsqlookupds on fixed ports. The first of each is never killed: its statistics must not grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.soak.topics import SoakTopic
from tests.support.cluster import start_all
from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.network import port_pairs
from tests.support.nsqd_process import ServerProcess
from tests.support.nsqlookupd_process import NsqlookupdProcess

NSQDS, LOOKUPDS = 3, 2
# Small files, so that they come and go; short time-outs, so that what is held comes again and the hung are dropped.
NSQD_FLAGS = (
    "--max-bytes-per-file=1000000",
    "--mem-queue-size=2000",
    "--msg-timeout=5s",
    "--sync-timeout=1s",
)


class SoakNsqd(FaultyNsqd):
    """An nsqd with a disk and a clock that can be asked to misbehave."""

    def __init__(self, data_path: Path, *flags: str, ports: tuple[int, int]) -> None:
        self._clock = data_path.with_suffix(".clock")
        self.set_clock(0)
        super().__init__(data_path, *flags, ports=ports)

    def _program(self) -> list[str]:
        return ["tests.soak.nsqd", str(self._rules), str(self._clock)]

    def set_clock(self, wrong_by_s: int) -> None:
        """Set the wall clock of the nsqd to so many seconds after the right time."""
        temporary = self._clock.with_suffix(".clock.new")
        temporary.write_text(str(wrong_by_s))
        temporary.rename(self._clock)

    @property
    def tcp_address(self) -> str:
        return f"{self.host.address}:{self.tcp_port}"


class Cluster:
    """The processes. They are gone when it is left."""

    def __init__(self, directory: Path) -> None:
        pairs = port_pairs(NSQDS + LOOKUPDS)
        self.lookupds = [
            NsqlookupdProcess(directory / f"nsqlookupd{number}.log", ports=pair)
            for number, pair in enumerate(pairs[:LOOKUPDS])
        ]
        lookupd_flags = [f"--lookupd-tcp-address=127.0.0.1:{tcp_port}" for tcp_port, _ in pairs[:LOOKUPDS]]
        self.nsqds = [
            SoakNsqd(directory / f"nsqd{number}", *NSQD_FLAGS, *lookupd_flags, ports=pair)
            for number, pair in enumerate(pairs[LOOKUPDS:])
        ]

    @property
    def processes(self) -> Sequence[ServerProcess]:
        return [*self.nsqds, *self.lookupds]

    @property
    def nsqd_addresses(self) -> list[str]:
        return [nsqd.tcp_address for nsqd in self.nsqds]

    @property
    def lookupd_addresses(self) -> list[str]:
        return [lookupd.http_address for lookupd in self.lookupds]

    def __enter__(self) -> Cluster:
        with ExitStack() as stack:
            stack.callback(self.__exit__)
            start_all(self.lookupds)
            start_all(self.nsqds)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.destroy()

    def create(self, topics: Sequence[SoakTopic]) -> None:
        """Create the topics and their channels everywhere, before the first message."""
        for nsqd in self.nsqds:
            for topic in topics:
                nsqd.create(topic.name, *topic.channels)

    def make_whole(self) -> None:
        """End all faults, and start what does not run."""
        for nsqd in self.nsqds:
            nsqd.set_rules()
            nsqd.set_clock(0)
        start_all([process for process in self.processes if not process.is_running])

    def left(self, topics: Sequence[SoakTopic]) -> str:
        """Return which messages still wait, are in flight or deferred; an empty text if there are none."""
        names = {topic.name for topic in topics}
        return ", ".join(
            text
            for nsqd in self.nsqds
            for topic in nsqd.stats()["topics"]
            if topic["topic_name"] in names
            for text in _left(nsqd.data_path.name, topic)
        )


def _left(nsqd: str, topic: dict[str, Any]) -> Iterator[str]:
    if topic["depth"]:
        yield f"{nsqd} {topic['topic_name']}: depth {topic['depth']}"
    for channel in topic["channels"]:
        counts = {
            name: channel[name] for name in ("depth", "in_flight_count", "deferred_count") if channel[name]
        }
        if counts:
            yield f"{nsqd} {topic['topic_name']}/{channel['channel_name']}: {counts}"
