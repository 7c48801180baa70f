"""A primary whose log was harmed while it was stopped gets it back from its standbys; a standby never drops what it alone has."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.state_files import CLOCK_FILE, STANDBYS_FILE, read_epochs, write_checked
from nsqd_py.standby.repairs.fetch_server import FetchServer, NodeState
from tests.standby.conftest import Start
from tests.support.certificates import make_certificates
from tests.support.fake_etcd import FakeEtcd
from tests.support.harm import flip
from tests.support.hostile_primary import HostilePrimary
from tests.support.member import secret_file
from tests.support.memory import publish_deferred, resident_bytes
from tests.support.network import free_ports, port_pairs
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    NOWHERE,
    consume_all,
    figures_of,
    is_primary,
    is_standby,
    lease_holders,
    promote,
    wait_for_a_primary,
    wait_until_it_follows,
    wait_until_it_has_all,
    wait_until_it_serves,
)
from tests.support.sweeps import sampled

pytestmark = pytest.mark.ours

BATCH, BATCHES = 20, 20
ALL = BATCH * BATCHES
FLAGS = ("--max-bytes-per-file=20000",)
FILES = 3
CAME_BACK = "that were missing here came back from standbys"


def numbered(low: int, high: int) -> list[bytes]:
    return [b"%0100d" % number for number in range(low, high)]


EVERYTHING = numbered(0, ALL)


def log_files(nsqd: NsqdProcess) -> list[Path]:
    return sorted(nsqd.data_path.glob("t.*.log"))


Harm = Callable[[NsqdProcess], None]


class Pair:
    """A primary with three log files, whose ports stay the same, and its standby, which has all of it."""

    def __init__(self, start: Start, follow: Start, *flags: str) -> None:
        self._flags = (*FLAGS, *flags)
        self._follow = follow
        self.primary = start("a", *self._flags, ports=port_pairs(1)[0])
        self.primary.create("t", "c")
        self.standby = self.follow("b")
        self.primary.publish("t", EVERYTHING)
        wait_until_it_has_all(self.primary)

    def follow(self, name: str) -> NsqdProcess:
        return self._follow(self.primary, *self._flags, name=name)

    def start_harmed(self, harm: Harm, *, clean: bool = False) -> None:
        """Stop (or, if not clean, kill) the primary, harm its files, and start it again."""
        self.primary.stop() if clean else self.primary.kill()
        harm(self.primary)
        self.primary.start()

    def check_the_primary(self, published: int = ALL) -> None:
        """It has everything, and counts nothing as lost."""
        topic = self.primary.topic_stats("t")
        (channel,) = topic["channels"]
        assert (channel["depth"], channel.get("lost_count"), topic.get("missing_count")) == (
            published,
            None,
            None,
        )

    def check_the_promoted(self, expected: list[bytes]) -> None:
        wait_until_it_follows(self.standby)
        wait_until_it_has_all(self.primary)
        assert figures_of(self.standby)["set_aside_messages"] == 0
        self.primary.kill()
        promote(self.standby)
        assert sorted(consume_all(self.standby, "t", "c")) == expected


MakePair = Callable[..., Pair]


@pytest.fixture
def pair(start, follow) -> MakePair:
    return partial(Pair, start, follow)


def remove(*places: int) -> Harm:
    def harm(nsqd: NsqdProcess) -> None:
        files = log_files(nsqd)
        for place in places:
            files[place].unlink()

    return harm


def cut(place: int, size: int = 3_000) -> Harm:
    return lambda nsqd: os.truncate(log_files(nsqd)[place], size)


def flipped(place: int, offset: int) -> Harm:
    return lambda nsqd: flip(log_files(nsqd)[place], offset)


def after_power_cut(nsqd: NsqdProcess) -> None:
    cut(-1)(nsqd)
    (nsqd.data_path / CLOCK_FILE).unlink()  # of another boot


HARMS = {
    "first file removed": remove(0),
    "last file removed": remove(-1),
    "all files removed": remove(0, 1, 2),
    "a file cut": cut(0),
    "the end cut": cut(-1),
    "the end gone": cut(-1, 64),
    "a file emptied": cut(1, 0),
    "the head of a record flipped": flipped(1, 64 + 4),
    "the head of a file flipped": flipped(0, 9),
    "the last record flipped": flipped(-1, 64 + 200),
}


QUICK = ("first file removed", True), ("a file cut", False), ("the end cut", False)


@pytest.mark.parametrize(("harm", "is_clean"), sampled(itertools.product(HARMS, (False, True)), *QUICK))
def test_what_a_primary_has_lost_comes_back(pair, harm, is_clean):
    both = pair("--standby-acks=1")
    assert len(log_files(both.primary)) == FILES
    both.start_harmed(HARMS[harm], clean=is_clean)
    assert CAME_BACK in both.primary.log_text()
    both.check_the_primary()
    assert not list(both.primary.data_path.glob("*.back"))
    both.check_the_promoted(EVERYTHING)


@pytest.mark.slow
def test_a_start_that_begins_again_frees_what_it_had_loaded(pair):
    """Whether it begins again before it serves, or when a standby has come back."""
    count = 30_000
    both = pair("--accept-standbys")
    both.primary.create("deferred", "c")
    publish_deferred(both.primary, "deferred", count)
    wait_until_it_has_all(both.primary)
    both.primary.restart()

    def loaded_bytes():
        both.primary.wait_for_channel("deferred", "c", deferred_count=count)
        wait_until_it_has_all(both.primary)
        return resident_bytes(both.primary)

    once = loaded_bytes()
    both.start_harmed(remove(0))
    assert CAME_BACK in both.primary.log_text()
    assert loaded_bytes() - once < 180 * count, "260 when it kept both"
    both.standby.stop()
    both.start_harmed(remove(0))
    both.standby.start()
    wait_until_it_follows(both.standby)
    assert CAME_BACK in both.primary.log_text()
    assert loaded_bytes() - once < 180 * count
    both.check_the_primary()


def test_what_is_lost_comes_back_when_the_standby_is_back(pair):
    """At the start it was away: then it is lost, and counted."""
    both = pair("--accept-standbys")
    both.standby.stop()
    both.primary.kill()
    cut(1)(both.primary)
    remove(0)(both.primary)
    both.primary.start()
    assert "cannot ask a standby for what may be missing here" in both.primary.log_text()
    assert both.primary.channel_stats("t", "c")["lost_count"] > 200
    both.primary.publish("t", numbered(ALL, ALL + BATCH))
    both.standby.start()
    wait_until_it_follows(both.standby)
    assert "nsqd is loaded again to get them back" in both.primary.log_text()
    both.check_the_primary(ALL + BATCH)
    both.check_the_promoted(numbered(0, ALL + BATCH))


def test_what_is_lost_comes_back_when_both_have_other_addresses(pair, start):
    """As with containers that get new addresses: neither is found where it was, and the standby seeks in a wrong place first."""
    both = pair("--accept-standbys")
    both.standby.stop()
    both.primary.kill()
    cut(-1)(both.primary)
    NsqdProcess(both.standby.data_path, *FLAGS, f"--standby-of={NOWHERE}").start().kill()
    both.primary = start("a", *FLAGS, "--accept-standbys", ports=port_pairs(1)[0])
    both.standby = both.follow("b")
    wait_until_it_follows(both.standby)
    assert CAME_BACK in both.primary.log_text()
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


def test_the_end_of_a_log_comes_back_if_nothing_was_written_since(pair):
    both = pair("--accept-standbys")
    both.standby.stop()
    both.start_harmed(cut(-1))
    both.standby.start()
    wait_until_it_follows(both.standby)
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


def test_after_a_power_cut_no_publish_takes_the_numbers_of_what_a_standby_has(pair):
    """It would not get its OK anyway: with acks, a standby must be there, and the one that comes has the end of the log."""
    both = pair("--standby-acks=1")
    both.standby.stop()
    both.primary.kill()
    after_power_cut(both.primary)
    for _ in range(2):
        both.primary.start()
        refused = both.primary.http("POST", "/pub?topic=t", b"x")
        assert refused.status == 503
        assert "a power cut may have taken the end of topic t" in both.primary.http("GET", "/ping").text
        both.primary.stop()
    both.primary.start()
    both.standby.start()
    wait_until_it_follows(both.standby)
    both.primary.publish("t", numbered(ALL, ALL + BATCH))
    both.check_the_primary(ALL + BATCH)
    both.check_the_promoted(numbered(0, ALL + BATCH))


def test_the_end_of_a_log_is_asked_for_until_a_standby_has_answered(pair):
    """A clean stop of a start that got no answer does not say that the log is complete."""
    both = pair("--standby-acks=1")
    both.standby.stop()
    both.start_harmed(cut(-1))
    for _ in range(2):
        both.primary.stop()
        both.primary.start()
    both.primary.stop()
    both.primary.start()
    both.standby.start()  # on other ports: it is asked when it comes
    wait_until_it_follows(both.standby)
    assert CAME_BACK in both.primary.log_text()
    both.check_the_primary()
    both.primary.publish("t", numbered(ALL, ALL + BATCH))
    both.primary.stop()
    both.primary.start()
    assert CAME_BACK not in both.primary.log_text()
    both.check_the_primary(ALL + BATCH)
    both.check_the_promoted(numbered(0, ALL + BATCH))


def test_a_start_that_is_ended_while_it_asks_leaves_the_question_open(pair):
    both = pair("--standby-acks=1")
    both.primary.kill()
    cut(-1)(both.primary)
    both.standby.signal(signal.SIGSTOP)
    both.primary.launch()
    wait_until(
        lambda: "cut off" in both.primary.log_text() or is_up(both.primary), DEADLINE_S, "the cut file"
    )
    both.primary.stop()
    assert not is_up(both.primary)
    both.standby.signal(signal.SIGCONT)
    both.primary.start()
    assert CAME_BACK in both.primary.log_text()
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


@pytest.mark.parametrize("count", sampled([1, 30], 30))
def test_an_end_that_was_overtaken_is_set_aside_and_counted(pair, start, tmp_path, count):
    """Other messages have its numbers: two histories are never merged."""
    both = pair("--accept-standbys")
    both.standby.stop()
    both.start_harmed(cut(-1))
    kept = both.primary.channel_stats("t", "c")["depth"]
    assert kept == ALL - BATCH
    overtaking = numbered(ALL, ALL + count * BATCH)
    both.primary.publish("t", overtaking)
    both.standby.start()
    wait_until_it_follows(both.standby)
    wait_until(
        lambda: figures_of(both.standby)["set_aside_messages"] == ALL - kept,
        DEADLINE_S,
        "the messages to be counted",
    )
    set_aside = next(path for path in both.standby.data_path.glob("standby-*") if any(path.glob("*.log")))
    both.primary.kill()
    promote(both.standby)
    assert sorted(consume_all(both.standby, "t", "c")) == EVERYTHING[:kept] + overtaking
    shutil.copytree(set_aside, tmp_path / "aside", ignore=shutil.ignore_patterns("nsqd.epochs"))
    assert set(EVERYTHING[kept:]) <= set(consume_all(start("aside"), "t", "c"))


def test_two_standbys_one_of_them_behind(pair):
    both = pair("--standby-acks=1")
    other = both.follow("c")
    other.stop()
    both.primary.publish("t", numbered(ALL, 2 * ALL))
    wait_until_it_has_all(both.primary)
    other.start()  # it cannot follow: the primary is killed now
    both.primary.kill()
    for path in log_files(both.primary):
        path.unlink()
    both.primary.start()
    both.check_the_primary(2 * ALL)
    wait_until_it_follows(other)
    both.check_the_promoted(numbered(0, 2 * ALL))


def test_a_standby_that_comes_at_the_address_of_one_that_is_behind(pair, start):
    """What the first one had was tried. The other one, which is there now, has more."""
    both = pair("--standby-acks=1")
    behind = both.follow("c")
    behind.kill()
    both.primary.publish("t", numbered(ALL, ALL + 2 * BATCH))
    wait_until_it_has_all(both.primary)
    both.standby.stop()
    both.primary.kill()
    cut(-1, 64)(both.primary)
    both.primary.start()
    ports = port_pairs(1)[0]
    following = (*FLAGS, f"--standby-of=127.0.0.1:{both.primary.tcp_port}")
    behind = start("c", *following, ports=ports)
    wait_until_it_follows(behind)
    assert both.primary.channel_stats("t", "c")["depth"] == ALL
    behind.stop()
    both.standby = start("b", *following, ports=ports)
    wait_until_it_follows(both.standby)
    both.check_the_primary(ALL + 2 * BATCH)


def test_another_nsqd_at_the_address_of_a_standby_is_no_answer(pair, start):
    """The standby itself comes later, from elsewhere."""
    both = pair("--accept-standbys")
    both.standby.stop()
    both.primary.kill()
    cut(-1)(both.primary)
    other = start("other", "--accept-standbys", ports=(both.standby.tcp_port, both.standby.http_port))
    other.create("t", "c")
    other.publish("t", EVERYTHING[:BATCH])
    both.primary.start()
    assert "has no log of this nsqd" in both.primary.log_text()
    both.primary.stop()
    both.primary.start()
    both.standby = both.follow("b")
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


def test_it_is_killed_while_it_gets_it_back(pair):
    both = pair("--standby-acks=1")
    both.primary.kill()
    remove(2, 1)(both.primary)
    cut(0)(both.primary)
    for started in ("asking", "NSQ: closing topics", CAME_BACK):
        both.primary.launch()
        wait_until(
            lambda text=started: text in both.primary.log_text() or is_up(both.primary), DEADLINE_S, started
        )
        both.primary.kill()
    both.primary.start()
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


def is_up(nsqd: NsqdProcess) -> bool:
    return "listening" in nsqd.log_text()


def test_a_standby_that_was_promoted_gives_nothing_back(pair):
    both = pair("--accept-standbys")
    both.primary.kill()
    promote(both.standby)
    remove(0)(both.primary)
    both.primary.start()
    assert "was promoted" in both.primary.log_text()
    assert CAME_BACK not in both.primary.log_text()
    wait_until_it_follows(both.primary)
    assert sorted(consume_all(both.standby, "t", "c")) == EVERYTHING


def test_the_good_files_of_an_earlier_epoch_stay(pair, start):
    """A bit flips in the promoted one. The old primary still has that file, and gives it back as its standby."""
    both = pair("--accept-standbys", "--scrub-rate=50MB", "--retention-bytes=10MB")
    both.primary.kill()
    promote(both.standby)
    both.standby.stop()
    flipped(0, 64 + 200)(both.standby)
    both.standby.start()
    before = log_files(both.primary)[0].stat()
    old = start("a", *FLAGS, f"--standby-of={both.standby.tcp_address}")
    wait_until_it_follows(old)
    assert sorted(consume_all(both.standby, "t", "c")) == EVERYTHING
    assert log_files(old)[0].stat().st_ino == before.st_ino


@pytest.mark.parametrize("flags", [(), ("--accept-standbys",)], ids=["no group", "away"])
def test_a_start_goes_on_without_an_answer(start, flags):
    """A standby of an earlier version refuses to be asked, as an nsqd that is in no group does."""
    other = start("other")
    nsqd = start("a", "--accept-standbys")
    nsqd.create("t", "c")
    nsqd.post("/pub?topic=t", b"x")
    nsqd.kill()
    (closed,) = free_ports(1)
    asked = closed if flags else other.tcp_port
    write_checked(nsqd.data_path / STANDBYS_FILE, {"standbys": [[f"127.0.0.1:{asked}"]]})
    nsqd.start()
    assert f"cannot ask a standby for what may be missing here - 127.0.0.1:{asked}: " in nsqd.log_text()
    assert consume_all(nsqd, "t", "c") == [b"x"]


Spoil = Callable[[int, bytes], bytes | None]


def standby_that_fails(folder: Path, spoil: Spoil) -> AbstractContextManager[HostilePrimary]:
    """A member that gives what is in a folder, but `spoil` changes the n-th answer with bytes, or ends it all with None."""
    saved = read_epochs(folder)
    server = FetchServer(
        folder, None, lambda: NodeState(0, is_complete=True), lambda topic: saved.logs.get(topic, ())
    )
    count = 0

    def script(request: dict[str, Any]) -> Iterator[bytes]:
        nonlocal count
        found = server._work(json.dumps(request).encode())()
        answer = found if isinstance(found, bytes) else found()
        if request["fetch"] == "bytes":
            count += 1
            answer = spoil(count, answer or b"")
        if answer is None:
            fake.close()
            raise OSError("it is gone")
        yield answer

    fake = HostilePrimary(script)
    return closing(fake)


SPOILS: dict[str, tuple[Spoil, int]] = {
    "ends": (lambda number, answer: answer if number < 2 else None, 220),
    "is damaged": (lambda _, answer: answer[:300] + bytes([answer[300] ^ 8]) + answer[301:], 60),
}


@pytest.mark.parametrize(("spoil", "lost"), SPOILS.values(), ids=SPOILS)
def test_a_standby_that_fails_gives_what_is_right(pair, spoil, lost):
    """The rest is lost, until another one is there."""
    both = pair("--standby-acks=1", "--standby-on-timeout=alone")
    both.standby.stop()
    both.primary.stop()
    remove(0, 1, 2)(both.primary)
    with standby_that_fails(both.standby.data_path, spoil) as fake:
        addresses = [[f"127.0.0.1:{fake.port}"], [f"127.0.0.1:{both.standby.tcp_port}"]]
        write_checked(both.primary.data_path / STANDBYS_FILE, {"standbys": addresses})
        both.primary.start()
    assert both.primary.channel_stats("t", "c")["lost_count"] == lost
    both.standby.start()
    wait_until_it_follows(both.standby)
    wait_until(lambda: "lost_count" not in both.primary.channel_stats("t", "c"), DEADLINE_S, "what was lost")
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


def test_with_a_secret_and_tls(pair, tmp_path):
    pem = make_certificates(tmp_path / "pem")
    both = pair(
        secret_file(tmp_path / "secret"),
        "--standby-acks=1",
        *pem.server_flags,
        "--https-address=127.0.0.1:0",
        "--standby-tls",
        f"--standby-tls-root-ca-file={pem.authority}",
    )
    both.start_harmed(remove(0))
    assert CAME_BACK in both.primary.log_text()
    both.check_the_primary()


def publish_in_sync(first: NsqdProcess, second: NsqdProcess, etcd: FakeEtcd) -> None:
    """Publish everything to the first member of a group, and wait until the second one is in sync with it."""
    wait_until_it_follows(second)
    first.create("t", "c")
    first.publish("t", EVERYTHING)
    wait_until_it_has_all(first)
    wait_until(lambda: len(etcd.note("orders")["members"]) == 2, DEADLINE_S, "the standby to be in sync")


def test_the_holder_of_a_lease_gets_it_back(tmp_path, processes):
    """Whoever of the two takes the lease has everything."""
    with FakeEtcd() as etcd:
        flags = (*FLAGS, f"--lease=etcd://{etcd.address}/orders", "--lease-ttl=2s", "--standby-acks=1")
        processes += lease_holders(tmp_path, "ab", *flags)
        first, second = processes
        NsqdProcess(first.data_path).start().stop()
        first.start()
        second.start()
        publish_in_sync(first, second, etcd)
        second.signal(signal.SIGSTOP)  # so that the first is the first to compete
        first.kill()
        remove(0)(first)
        first.launch()
        wait_until(lambda: "LEASE: waiting for" in first.log_text(), DEADLINE_S, "the first to compete")
        second.signal(signal.SIGCONT)
        assert sorted(consume_all(wait_for_a_primary(processes), "t", "c")) == EVERYTHING


@pytest.mark.parametrize(
    ("harm", "ttl_s"), [(after_power_cut, 4), (remove(-1), 2)], ids=["power cut", "removed"]
)
def test_members_of_a_group_that_has_moved(tmp_path, processes, harm, ttl_s):
    """Neither can ask the other one before it begins an epoch. After a power cut, the one that has everything is first."""
    with FakeEtcd() as etcd:
        flags = (*FLAGS, f"--lease=etcd://{etcd.address}/orders", f"--lease-ttl={ttl_s}s", "--standby-acks=1")
        processes += lease_holders(tmp_path, "ab", *flags)
        first, second = processes
        NsqdProcess(first.data_path).start().stop()
        for nsqd in processes:
            nsqd.start()
        publish_in_sync(first, second, etcd)
        for nsqd in (second, first):
            nsqd.kill()
        harm(first)
        moved = lease_holders(tmp_path, "ab", *flags)
        processes += moved
        etcd.end_lease()
        moved[0].launch()
        wait_until(lambda: "LEASE: waiting for" in moved[0].log_text(), DEADLINE_S, "it to compete")
        if harm is not after_power_cut:
            wait_until_it_serves(moved[0])
        moved[1].launch()
        wait_until(
            lambda: sum(map(is_standby, moved)) == 1 == sum(map(is_primary, moved)), DEADLINE_S, "both roles"
        )
        primary, standby = sorted(moved, key=is_standby)
        wait_until_it_follows(standby)
        assert sorted(consume_all(primary, "t", "c")) == EVERYTHING


def test_the_standbys_are_remembered(pair):
    both = pair("--accept-standbys")
    _, _, content = (both.primary.data_path / STANDBYS_FILE).read_bytes().partition(b"\n")
    assert json.loads(content) == {"standbys": [[f"127.0.0.1:{both.standby.tcp_port}"]]}
