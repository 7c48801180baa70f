"""`nsqd_py.embedded()` as a user calls it: real processes, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nsqd_py
from nsqd_py.testing.embedded import EmbeddedCluster, Nsqd
from tests.support.nsqd_process import wait_until


@pytest.fixture(scope="module")
def daemon() -> Iterator[Nsqd]:
    with nsqd_py.embedded("--msg-timeout=2s") as running:
        yield running


def test_what_does_not_exist_has_a_depth_of_zero(daemon: Nsqd) -> None:
    assert daemon.depth("nothing") == daemon.depth("nothing", "nobody") == 0
    daemon.wait_for_depth("nothing", 0)


def test_what_is_published_waits_in_the_topic_and_in_its_channel(daemon: Nsqd) -> None:
    daemon.publish("orders", "one", b"two")
    daemon.wait_for_depth("orders", 2)
    daemon.post("/channel/create?topic=orders&channel=billing")
    daemon.wait_for_depth("orders", 2, "billing")
    daemon.publish("orders", "later", defer_ms=60_000)
    channel = daemon.stats("orders", "billing")["topics"][0]["channels"][0]
    assert (channel["depth"], channel["deferred_count"]) == (2, 1)


def test_a_depth_that_is_not_reached_is_an_error_with_the_last_depth(daemon: Nsqd) -> None:
    daemon.publish("short", "one")
    with pytest.raises(TimeoutError, match=r"the depth of short is 1 after 0\.05 s, not 2"):
        daemon.wait_for_depth("short", 2, timeout_s=0.05)


def test_a_refused_publish_tells_the_answer(daemon: Nsqd) -> None:
    with pytest.raises(RuntimeError, match="nsqd answered 400 to POST .*INVALID_TOPIC"):
        daemon.publish("not a topic", "body")


@pytest.mark.parametrize(
    "flag",
    [
        "--log-level=error",
        *(pytest.param(flag, marks=pytest.mark.slow) for flag in ("--log-format=json", "--log-prefix=[x] ")),
    ],
)
def test_a_log_of_any_kind(flag: str) -> None:
    """Addresses do not come from its text."""
    with nsqd_py.embedded(flag) as nsqd:
        nsqd.publish("topic", b"x")
        before = nsqd.tcp_address
        nsqd.restart()
        assert nsqd.tcp_address == before
        assert nsqd.depth("topic") == 1


def test_errors_have_the_end_of_the_log(daemon: Nsqd) -> None:
    with pytest.raises(RuntimeError, match="answered 404") as refused:
        daemon.get("/no-such-path")
    assert refused.value.__notes__[0].startswith("Last lines of its log:\n")
    with pytest.raises(RuntimeError, match=r"nsqd did not start:\n(.*\n)*.*no-such-flag"):
        nsqd_py.embedded("--no-such-flag")


def test_flags_are_nsqds(daemon: Nsqd) -> None:
    assert daemon.get("/config/msg_timeout") == 2_000_000_000


@pytest.mark.parametrize("end", [Nsqd.kill, Nsqd.stop])
def test_after_a_crash_it_has_its_ports_and_messages_again(end: object, tmp_path: Path) -> None:
    with nsqd_py.embedded(data_path=tmp_path) as daemon:
        addresses = daemon.tcp_address, daemon.http_address
        daemon.publish("kept", "one")
        end(daemon)  # type: ignore[operator]
        assert not daemon.running
        daemon.restart()
        assert (daemon.tcp_address, daemon.http_address) == addresses
        daemon.wait_for_depth("kept", 1)
    assert (tmp_path / "nsqd.dat").exists()
    with pytest.raises(RuntimeError, match="this nsqd is closed"):
        daemon.restart()


def test_its_temporary_folder_is_gone_after_it() -> None:
    with nsqd_py.embedded() as daemon:
        folder = daemon.data_path
        assert folder.is_dir()
    assert not folder.exists()


def test_a_cluster_is_ready_when_it_is_returned() -> None:
    """Although its logs say nothing."""
    with nsqd_py.embedded("--log-level=error", lookupd=True, nsqds=2) as cluster:
        assert isinstance(cluster, EmbeddedCluster)
        producers = cluster.lookupd.get("/nodes")["producers"]
        assert sorted(f"127.0.0.1:{each['tcp_port']}" for each in producers) == sorted(
            cluster.nsqd_tcp_addresses
        )
        assert cluster.lookupd_http_address == cluster.lookupd.http_address


def test_a_cluster_without_nsqlookupd_says_so() -> None:
    with (
        nsqd_py.embedded(nsqds=2) as cluster,
        pytest.raises(RuntimeError, match="start it with lookupd=True"),
    ):
        _ = cluster.lookupd_http_address
    with pytest.raises(ValueError, match="nsqds must be at least 1, got 0"):
        nsqd_py.embedded(nsqds=0)


OWNER = """
import nsqd_py, sys, time
daemon = nsqd_py.embedded()
print(daemon.tcp_address, daemon.data_path, flush=True)
{then}
"""


def _refuses(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) != 0


def _removed(folder: str) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not Path(folder).exists()


@pytest.mark.parametrize("then", ["time.sleep(60)", "sys.exit()", "raise SystemError"])
def test_it_ends_with_its_owner(then: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as owner:
        address, folder = owner.stdout.readline().split()
        if "sleep" in then:
            assert not _refuses(address)
            os.kill(owner.pid, signal.SIGKILL)
        owner.wait(40)
    wait_until(lambda: _refuses(address), what="the end of nsqd")
    assert ("sleep" in then) == Path(folder).exists()  # after SIGKILL nobody could remove it
    # It no longer listens, but may still be writing the last of its files.
    wait_until(lambda: _removed(folder), what="the removal of its directory")


def test_a_child_that_ends_leaves_the_folder_to_its_parent() -> None:
    script = (
        "import os, sys, nsqd_py\n"
        "nsqd = nsqd_py.embedded()\n"
        "if not os.fork():\n"
        "    sys.exit()\n"
        "os.wait()\n"
        "assert nsqd.data_path.is_dir()\n"
        "nsqd.publish('topic', 'message')\n"
        "nsqd.wait_for_depth('topic', 1)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
