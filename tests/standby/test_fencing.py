"""An old primary that comes back after its standby was promoted: it must not serve next to the new one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.network import port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.nsqlookupd_process import NsqlookupdProcess
from tests.support.standby_processes import (
    DEADLINE_S,
    consume_all,
    figures_of,
    is_primary,
    is_standby,
    promote,
    wait_until_it_follows,
    wait_until_it_gives_way,
    wait_until_it_has_all,
)
from tests.support.wire import pub

pytestmark = pytest.mark.ours

Pair = Callable[..., tuple[NsqdProcess, NsqdProcess]]


@pytest.fixture
def pair(start, follow) -> Pair:
    def start_both(*flags: str) -> tuple[NsqdProcess, NsqdProcess]:
        """Start a primary with one message, and its standby."""
        primary = start("a", *flags, ports=port_pairs(1)[0])
        primary.create("t", "c")
        standby = follow(primary, *flags)
        primary.post("/pub?topic=t", b"both")
        wait_until_it_has_all(primary)
        return primary, standby

    return start_both


def test_an_old_primary_that_comes_back_without_a_flag_becomes_a_standby(pair):
    old, new = pair("--accept-standbys")
    old.kill()
    promote(new)
    new.post("/pub?topic=t", b"new")
    old.start()
    wait_until_it_gives_way(old)
    wait_until_it_follows(old)
    assert figures_of(old)["is_fenced"]
    assert old.http("GET", "/ping").text == f"OK - fenced: 127.0.0.1:{new.tcp_port} was promoted"
    assert "FENCED" in old.log_text()
    with old.connect() as client:
        assert client.ask(pub("t", b"x")).data.startswith(b"E_PUB_FAILED PUB failed nsqd is a standby of")
    wait_until(lambda: "is fenced: it does not serve" in new.log_text(), DEADLINE_S, "the answer")

    old.restart(clean=False)  # with the same flags
    assert is_standby(old)
    wait_until_it_follows(old)
    wait_until_it_has_all(new)
    new.kill()
    promote(old)
    assert consume_all(old, "t", "c") == [b"both", b"new"]


def test_a_primary_that_was_cut_off_while_its_standby_was_promoted_gives_way(pair, start):
    """What it took alone is set aside."""
    old, new = pair("--accept-standbys")
    new.kill()
    old.post("/pub?topic=t", b"alone")
    start("b", "--accept-standbys", "--promote")
    wait_until_it_gives_way(old)
    wait_until_it_follows(old)
    assert figures_of(old)["set_aside_messages"] == 1
    assert list(old.data_path.glob("standby-alone-*/t.*.log"))


def test_a_fenced_nsqd_can_be_promoted_if_the_new_primary_is_gone_before_it_followed(pair, start):
    """It has its own messages still; nothing of the other one has reached it."""
    old, new = pair("--accept-standbys")
    new.kill()
    promoted = start("b", "--promote")  # without --accept-standbys: nobody can follow it
    wait_until_it_gives_way(old)
    wait_until(
        lambda: "--accept-standbys is off" in old.log_text(), DEADLINE_S, "the old primary to be refused"
    )
    promoted.kill()
    promote(old)
    assert consume_all(old, "t", "c") == [b"both"]


def test_with_acks_the_old_primary_answers_no_publish(pair):
    """Also where the new primary cannot reach it: no standby of its own epoch follows."""
    old, new = pair("--standby-acks=1", "--standby-timeout=300ms")
    old.kill()
    promote(new)
    new.kill()
    old.start()
    with old.connect() as client:
        assert client.ask(pub("t", b"x")).data.startswith(b"E_PUB_FAILED")
    assert old.http("POST", "/pub?topic=t", b"y").status == 503
    assert is_primary(old)


def test_an_nsqd_whose_logs_are_others_is_not_fenced(pair, start):
    """A new nsqd at the address of the old one has its own messages."""
    old, new = pair("--accept-standbys")
    old.kill()
    promote(new)
    other = start("other", "--accept-standbys", ports=(old.tcp_port, old.http_port))
    other.create("t", "c")
    refusal = "no log of the sender continues one of this nsqd's logs"
    wait_until(lambda: refusal in new.log_text(), DEADLINE_S, "the refusal")
    assert is_primary(other)
    assert is_primary(new)


def test_a_fenced_nsqd_leaves_nsqlookupd(tmp_path, pair):
    with NsqlookupdProcess(tmp_path / "nsqlookupd.log").start() as lookupd:
        old, new = pair("--accept-standbys", f"--lookupd-tcp-address=127.0.0.1:{lookupd.tcp_port}")
        old.kill()
        promote(new)
        old.start()
        wait_until_it_gives_way(old)

        def ports():
            return [each["tcp_port"] for each in lookupd.lookup("t")]

        wait_until(lambda: ports() == [new.tcp_port], DEADLINE_S, "nsqlookupd to know the new primary only")
