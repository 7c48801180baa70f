"""An old primary that comes back after its standby was promoted: it must not serve next to the new one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import standby_processes
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.wire import pub

pytestmark = pytest.mark.ours


@pytest.fixture
def pair(tmp_path: Path, processes: list[NsqdProcess]) -> Callable[..., tuple[NsqdProcess, NsqdProcess]]:
    def start(*flags: str) -> tuple[NsqdProcess, NsqdProcess]:
        """Start a primary with one message, and its standby."""
        tcp_port, http_port = free_ports(2)
        primary = NsqdProcess(tmp_path / "a", *flags, ports=(tcp_port, http_port)).start()
        processes.append(primary)
        primary.create("t", "c")
        standby = standby_processes.standby_of(primary, tmp_path / "b", *flags)
        processes.append(standby)
        primary.post("/pub?topic=t", b"both")
        standby_processes.wait_until_it_has_all(primary)
        return primary, standby

    return start


Pair = Callable[..., tuple[NsqdProcess, NsqdProcess]]


def test_an_old_primary_that_comes_back_without_a_flag_becomes_a_standby(pair: Pair) -> None:
    old, new = pair("--accept-standbys")
    old.kill()
    standby_processes.promote(new)
    new.post("/pub?topic=t", b"new")
    old.start()
    wait_until(lambda: standby_processes.is_standby(old), standby_processes.DEADLINE_S, "the old primary to give way")
    standby_processes.wait_until_it_follows(old)
    assert standby_processes.figures_of(old)["is_fenced"]
    assert old.http("GET", "/ping").text == f"OK - fenced: 127.0.0.1:{new.tcp_port} was promoted"
    assert "FENCED" in old.log_text()
    with old.connect() as client:
        assert client.ask(pub("t", b"x")).data.startswith(b"E_PUB_FAILED PUB failed nsqd is a standby of")
    wait_until(lambda: "is fenced: it does not serve" in new.log_text(), standby_processes.DEADLINE_S, "the answer")

    old.restart(clean=False)  # with the same flags
    assert standby_processes.is_standby(old)
    standby_processes.wait_until_it_follows(old)
    standby_processes.wait_until_it_has_all(new)
    new.kill()
    standby_processes.promote(old)
    assert standby_processes.consume_all(old, "t", "c") == [b"both", b"new"]


def test_a_primary_that_was_cut_off_while_its_standby_was_promoted_gives_way(pair: Pair, processes: list[NsqdProcess]) -> None:
    """What it took alone is set aside."""
    old, new = pair("--accept-standbys")
    new.kill()
    old.post("/pub?topic=t", b"alone")
    processes.append(NsqdProcess(new.data_path, "--accept-standbys", "--promote").start())
    wait_until(lambda: standby_processes.is_standby(old), standby_processes.DEADLINE_S, "the old primary to give way")
    standby_processes.wait_until_it_follows(old)
    assert standby_processes.figures_of(old)["set_aside_messages"] == 1
    assert list(old.data_path.glob("standby-alone-*/t.*.log"))


def test_a_fenced_nsqd_can_be_promoted_if_the_new_primary_is_gone_before_it_followed(
    pair: Pair, processes: list[NsqdProcess]
) -> None:
    """It has its own messages still; nothing of the other one has reached it."""
    old, new = pair("--accept-standbys")
    new.kill()
    promoted = NsqdProcess(new.data_path, "--promote").start()  # without --accept-standbys: nobody can follow it
    processes.append(promoted)
    wait_until(lambda: standby_processes.is_standby(old), standby_processes.DEADLINE_S, "the old primary to give way")
    wait_until(
        lambda: "--accept-standbys is off" in old.log_text(), standby_processes.DEADLINE_S, "the old primary to be refused"
    )
    promoted.kill()
    standby_processes.promote(old)
    assert standby_processes.consume_all(old, "t", "c") == [b"both"]


def test_with_acks_the_old_primary_answers_no_publish(pair: Pair) -> None:
    """Also where the new primary cannot reach it: no standby of its own epoch follows."""
    old, new = pair("--standby-acks=1", "--standby-timeout=300ms")
    old.kill()
    standby_processes.promote(new)
    new.kill()
    old.start()
    with old.connect() as client:
        assert client.ask(pub("t", b"x")).data.startswith(b"E_PUB_FAILED")
    assert old.http("POST", "/pub?topic=t", b"y").status == 503
    assert standby_processes.is_primary(old)


def test_an_nsqd_whose_logs_are_others_is_not_fenced(pair: Pair, tmp_path: Path, processes: list[NsqdProcess]) -> None:
    """A new nsqd at the address of the old one has its own messages."""
    old, new = pair("--accept-standbys")
    old.kill()
    standby_processes.promote(new)
    other = NsqdProcess(tmp_path / "other", "--accept-standbys", ports=(old.tcp_port, old.http_port)).start()
    processes.append(other)
    other.create("t", "c")
    wait_until(
        lambda: "no log of the sender continues one of this nsqd's logs" in new.log_text(),
        standby_processes.DEADLINE_S,
        "the refusal",
    )
    assert standby_processes.is_primary(other)
    assert standby_processes.is_primary(new)


def test_a_fenced_nsqd_leaves_nsqlookupd(tmp_path: Path, pair: Callable[..., tuple[NsqdProcess, NsqdProcess]]) -> None:
    with NsqlookupdProcess(tmp_path / "nsqlookupd.log").start() as lookupd:
        old, new = pair("--accept-standbys", f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
        old.kill()
        standby_processes.promote(new)
        old.start()
        wait_until(lambda: standby_processes.is_standby(old), standby_processes.DEADLINE_S, "the old primary to give way")

        def ports() -> list[int]:
            return [each["tcp_port"] for each in lookupd.lookup("t")]

        wait_until(lambda: ports() == [new.tcp_port], standby_processes.DEADLINE_S, "nsqlookupd to know the new primary only")
