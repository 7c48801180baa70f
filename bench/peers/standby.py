"""An nsqd of ours that has a standby, if its flags have --standby-acks; else it is alone."""

import shlex
from pathlib import Path

from bench.admin import Admin
from bench.peers.nsqd import Nsqd
from bench.server import Daemon


class Replicated(Nsqd):
    """Both run in one session: the standby is a child of the primary, so that figures of processor time have both."""

    def _configure(self, directory: Path) -> None:
        self._has_standby = any(word.startswith("--standby-acks") for word in self._command)
        command = list(self._command)
        super()._configure(directory)
        if not self._has_standby:
            return
        primary, ports = self._command, (self._tcp_port, self._http_port)
        self._command = [word for word in command if not word.startswith("--standby-acks")]
        (directory / "standby").mkdir()
        super()._configure(directory / "standby")
        standby = [*self._command, f"--standby-of=127.0.0.1:{ports[0]}"]
        self._tcp_port, self._http_port = ports
        words = [*primary, "--accept-standbys"]
        self._command = ["sh", "-c", f"{shlex.join(standby)} & exec {shlex.join(words)}"]

    def _is_ready(self) -> bool:
        if not super()._is_ready():
            return False
        standbys = Admin(self._http_port).stats().get("standbys", {}).get("list", [])
        return not self._has_standby or any(standby["is_following"] for standby in standbys)


REPLICATED = Daemon("nsqd", "nsq_apps.nsqd", keeps_data=True, server=Replicated)
