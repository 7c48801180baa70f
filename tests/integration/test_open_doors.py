"""A daemon that everyone may use says so when it starts. The quick starts listen on this machine only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.support.nsqd_process import REPOSITORY
from tests.support.tool_process import ToolProcess

pytestmark = pytest.mark.ours

WARNING = "because there is no AUTH, TLS or password: docs/security.md"
OWN_FLAGS = {
    "nsqd": ["--data-path={}"],
    "nsqlookupd": [],
    "nsqadmin": ["--nsqd-http-address=127.0.0.1:1", "--history-file="],
}
LOCKED = [
    *((daemon, lock) for daemon in OWN_FLAGS for lock in ("passwords", "TLS")),
    ("nsqd", "AUTH"),
    ("nsqadmin", "proxy"),
]


def start_of(daemon: str, directory: Path, host: str, *flags: str) -> str:
    """The log of a daemon from its start to its end."""
    ports = [f"--{port}-address={host}:0" for port in ("tcp", "http")[daemon == "nsqadmin" :]]
    own = [flag.format(directory) for flag in OWN_FLAGS[daemon]]
    with ToolProcess("nsq_apps", daemon, *ports, *own, *flags, log_path=directory / "log") as process:
        process.wait_for_log("HTTP: listening")
        process.stop()
        return process.log_text()


@pytest.mark.parametrize("daemon", OWN_FLAGS)
def test_a_daemon_that_everyone_may_use_says_so_in_one_line(daemon, tmp_path):
    log = start_of(daemon, tmp_path, "0.0.0.0")
    lines = [line for line in log.splitlines() if WARNING in line]
    assert len(lines) == 1
    assert re.search(r"WARNING: everyone who can reach (0\.0\.0\.0:0, )?0\.0\.0\.0:0 may use it", lines[0])
    for local in ("127.0.0.1", "localhost", "127.1.2.3"):
        assert WARNING not in start_of(daemon, tmp_path, local)


@pytest.mark.parametrize(("daemon", "lock"), LOCKED)
def test_a_daemon_with_a_lock_says_nothing(daemon, lock, certificates, tmp_path):
    accounts = tmp_path / "accounts"
    accounts.write_text(f"token:me:{'0' * 64}\n", "utf-8")
    flags = {
        "passwords": [f"--http-auth-file={accounts}"],
        "TLS": [f"--tls-cert={certificates.server_certificate}", f"--tls-key={certificates.server_key}"],
        "AUTH": ["--auth-http-address=127.0.0.1:1"],
        "proxy": ["--acl-http-header-from=127.0.0.1"],
    }[lock]
    if lock == "TLS" and daemon == "nsqd":
        flags.append("--https-address=127.0.0.1:0")
    assert WARNING not in start_of(daemon, tmp_path, "0.0.0.0", *flags)


def test_make_run_listens_on_this_machine_only():
    script = Path(REPOSITORY, "contrib", "run-local.sh").read_text("utf-8")
    starts = re.findall(r'"\$bin/(nsq\w+)-py"(.*?)&', script, re.DOTALL)
    assert [name for name, _ in starts] == ["nsqlookupd", "nsqd", "nsqadmin"]
    for name, flags in starts:
        assert flags.count("-address=127.0.0.1:") == (1 if name == "nsqadmin" else 2)


@pytest.mark.parametrize("compose", ["compose.yaml", "contrib/standby/compose.yaml"])
def test_compose_publishes_ports_to_this_machine_only(compose):
    services = yaml.safe_load(Path(REPOSITORY, compose).read_text("utf-8"))["services"]
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
