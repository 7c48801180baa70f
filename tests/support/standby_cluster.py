"""A primary, its standby behind a relay, an nsqlookupd and nsqadmins over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from tests.support.network import Relay, free_ports
from tests.support.nsqadmin_cluster import AdminCluster, address
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import DEADLINE_S, wait_until_it_follows


class StandbyCluster(AdminCluster):
    """Runs from `with` to its end. `relay.hold()` keeps messages from the standby, which still answers."""

    def __init__(self, folder: Path, *primary_flags: str, with_relay: bool = False) -> None:
        super().__init__(folder)
        self._primary_flags = primary_flags
        self._with_relay = with_relay
        self.relay: Relay | None = None

    def __enter__(self) -> Self:
        self.lookupd.start()
        flags = (f"--lookupd-tcp-address=127.0.0.1:{self.lookupd.tcp_port}", "--accept-standbys")
        if self._with_relay:
            (port,) = free_ports(1)
            # Members check that they reach each other where the primary says that it is.
            self._primary_flags += (f"--broadcast-tcp-port={port}",)
        self.primary = self._start_nsqd("primary", *flags, *self._primary_flags)
        if self._with_relay:
            self.relay = Relay(("127.0.0.1", port), ("127.0.0.1", self.primary.tcp_port))
        else:
            port = self.primary.tcp_port
        self.standby = self._start_nsqd("standby", f"--standby-of=127.0.0.1:{port}", *flags)
        wait_until_it_follows(self.standby)
        wait_until(lambda: len(self.lookupd.nodes()) == 1, what="the primary at nsqlookupd")
        return self

    def _start_nsqd(self, name: str, *flags: str) -> NsqdProcess:
        self.nsqds.append(NsqdProcess(self._folder / name, *flags))
        return self.nsqds[-1].start()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self.relay is not None:
            self.relay.close()

    def wait_for_row(self, admin: NsqadminProcess, nsqd: NsqdProcess, **wanted: Any) -> dict[str, Any]:
        """Return the row of an nsqd in nsqadmin once it has these values; those of `standby` count too."""

        def row() -> dict[str, Any] | None:
            for found in admin.get("/api/v2/nodes")["rows"]:
                about = found | {f"standby_{key}": value for key, value in (found["standby"] or {}).items()}
                if found["node"] == address(nsqd) and all(
                    about.get(key) == value for key, value in wanted.items()
                ):
                    return about
            return None

        return wait_until(row, DEADLINE_S, f"{address(nsqd)} with {wanted}") or {}
