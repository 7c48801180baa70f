"""An nsqlookupd and two nsqds for many tests of nsqadmin, and nsqadmins over them."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess, ServerProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess


def address(server: ServerProcess) -> str:
    """Where it is over HTTP, as nsqadmin calls it."""
    return f"{server.host.address}:{server.http_port}"


class AdminCluster:
    """Runs from `with` to its end. `clear` makes it as it was."""

    def __init__(self, folder: Path, *nsqd_flags: str) -> None:
        self._folder = folder
        self._nsqd_flags = nsqd_flags
        self._admins: list[NsqadminProcess] = []
        self.lookupd = NsqlookupdProcess(folder / "nsqlookupd.log")
        self.nsqds: list[NsqdProcess] = []
        self._plain: NsqadminProcess | None = None

    def __enter__(self) -> Self:
        self.lookupd.start()
        flags = (f"--lookupd-tcp-address=127.0.0.1:{self.lookupd.tcp_port}", *self._nsqd_flags)
        self.nsqds = [NsqdProcess(self._folder / f"nsqd{number}", *flags) for number in range(2)]
        for nsqd in self.nsqds:
            nsqd.launch()
        for nsqd in self.nsqds:
            nsqd.wait_until_it_listens()
        wait_until(lambda: len(self.lookupd.nodes()) == 2, what="both nsqds at nsqlookupd")
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self._admins, *self.nsqds, self.lookupd]:
            process.destroy()

    def admin(self, *flags: str, command: list[str] | None = None) -> NsqadminProcess:
        """One over this cluster; without flags always the same. It asks four times a second."""
        if not flags and not command and self._plain is not None:
            return self._plain
        own = () if command else ("--poll-interval=250ms",)
        if not command and not any(flag.startswith("--history-file") for flag in flags):
            own += ("--history-file=",)
        if not any(flag.startswith("--nsqd-http-address") for flag in flags):
            own += (f"--lookupd-http-address={self.lookupd.http_address}",)
        log_path = self._folder / f"nsqadmin{len(self._admins)}.log"
        admin = NsqadminProcess(log_path, *own, *flags, command=command)
        self._admins.append(admin)
        admin.start()
        if not flags and not command:
            self._plain = admin
        return admin

    def create(self, topic: str, *channels: str) -> None:
        """On both."""
        for nsqd in self.nsqds:
            nsqd.create(topic, *channels)
        wait_until(lambda: len(self.lookupd.lookup(topic)) == 2, what=f"{topic} at nsqlookupd")
        wait_until(lambda: self.lookupd.channels(topic) == sorted(channels), what=f"channels of {topic}")

    def publish(self, topic: str, *counts: int) -> None:
        """So many on each."""
        for nsqd, count in zip(self.nsqds, counts, strict=True):
            for _ in range(count):
                nsqd.post(f"/pub?topic={topic}", b"hello")

    def end_other_admins(self) -> None:
        """End those with flags, which would go on to ask four times a second."""
        for admin in self._admins:
            if admin is not self._plain:
                admin.destroy()

    def clear(self) -> None:
        for nsqd in self.nsqds:
            for topic in nsqd.stats()["topics"] or ():
                nsqd.http("POST", f"/topic/delete?topic={topic['topic_name'].replace('#', '%23')}")
        wait_until(
            lambda: not any(node["topics"] for node in self.lookupd.nodes()), what="no topics at nsqlookupd"
        )
        for topic in self.lookupd.topics():
            self.lookupd.delete_topic(topic)
