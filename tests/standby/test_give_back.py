"""A primary whose log was harmed while it was stopped gets it back from its standbys; a standby never drops what it alone has."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.state_files import STANDBYS_FILE, read_epochs, write_checked
from nsqd_py.standby.fetch_server import FetchServer, NodeState
from tests.support.certificates import make_certificates
from tests.support.fake_etcd import FakeEtcd
from tests.support.hostile_primary import HostilePrimary
from tests.support.member import secret_file
from tests.support.memory import publish_deferred, resident_bytes
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    consume_all,
    figures_of,
    is_primary,
    promote,
    standby_of,
    wait_until_it_follows,
    wait_until_it_has_all,
)

pytestmark = pytest.mark.ours

BATCH, BATCHES = 20, 20
ALL = BATCH * BATCHES
FLAGS = ("--max-bytes-per-file=20000",)
FILES = 3
CAME_BACK = "that were missing here came back from standbys"


def body(number: int) -> bytes:
    return b"%0100d" % number


def publish(nsqd: NsqdProcess, low: int, high: int) -> None:
    with nsqd.connect() as client:
        for first in range(low, high, BATCH):
            client.mpub("t", [body(number) for number in range(first, first + BATCH)])


def log_files(nsqd: NsqdProcess) -> list[Path]:
    return sorted(nsqd.data_path.glob("t.*.log"))


class Pair:
    """A primary with three log files, whose ports stay the same, and its standby, which has all of it."""

    def __init__(self, folder: Path, processes: list[NsqdProcess], *flags: str) -> None:
        self.folder = folder
        self.processes = processes
        self.flags = (*FLAGS, *flags)
        tcp_port, http_port = free_ports(2)
        self.primary = NsqdProcess(folder / "a", *self.flags, ports=(tcp_port, http_port)).start()
        processes.append(self.primary)
        self.primary.create("t", "c")
        self.standby = self.follow("b")
        publish(self.primary, 0, ALL)
        wait_until_it_has_all(self.primary)

    def follow(self, name: str, *flags: str) -> NsqdProcess:
        self.processes.append(standby_of(self.primary, self.folder / name, *self.flags, *flags))
        return self.processes[-1]

    def check_the_primary(self, published: int = ALL) -> None:
        """It has everything, and counts nothing as lost."""
        topic = self.primary.topic_stats("t") or {}
        (channel,) = topic["channels"]
        assert (channel["depth"], channel.get("lost_count"), topic.get("missing_count")) == (published, None, None)

    def check_the_promoted(self, expected: list[bytes]) -> None:
        wait_until_it_follows(self.standby)
        wait_until_it_has_all(self.primary)
        assert figures_of(self.standby)["set_aside_messages"] == 0
        self.primary.kill()
        promote(self.standby)
        assert sorted(consume_all(self.standby, "t", "c")) == expected


MakePair = Callable[..., Pair]
Harm = Callable[[NsqdProcess], None]
EVERYTHING = [body(number) for number in range(ALL)]


@pytest.fixture
def pair(tmp_path: Path, processes: list[NsqdProcess]) -> MakePair:
    return lambda *flags: Pair(tmp_path, processes, *flags)


def remove(*places: int) -> Harm:
    def harm(nsqd: NsqdProcess) -> None:
        files = log_files(nsqd)
        for place in places:
            files[place].unlink()

    return harm


def cut(place: int, size: int = 3_000) -> Harm:
    return lambda nsqd: os.truncate(log_files(nsqd)[place], size)


def flip(place: int, offset: int) -> Harm:
    def harm(nsqd: NsqdProcess) -> None:
        data = bytearray(log_files(nsqd)[place].read_bytes())
        data[offset] ^= 8
        log_files(nsqd)[place].write_bytes(data)

    return harm


HARMS = {
    "first file removed": remove(0),
    "last file removed": remove(-1),
    "all files removed": remove(0, 1, 2),
    "a file cut": cut(0),
    "the end cut": cut(-1),
    "the end gone": cut(-1, 64),
    "a file emptied": cut(1, 0),
    "the head of a record flipped": flip(1, 64 + 4),
    "the head of a file flipped": flip(0, 9),
    "the last record flipped": flip(-1, 64 + 200),
}


QUICK = {("first file removed", False), ("first file removed", True), ("a file cut", False), ("the end cut", False)}


@pytest.mark.parametrize(
    ("harm", "is_clean"),
    [
        pytest.param(harm, is_clean, id=f"{name}-{is_clean}", marks=() if (name, is_clean) in QUICK else pytest.mark.slow)
        for name, harm in HARMS.items()
        for is_clean in (False, True)
    ],
)
def test_what_a_primary_has_lost_comes_back(pair: MakePair, harm: Callable[[NsqdProcess], None], is_clean: bool) -> None:
    both = pair("--standby-acks=1")
    assert len(log_files(both.primary)) == FILES
    both.primary.stop() if is_clean else both.primary.kill()
    harm(both.primary)
    both.primary.start()
    assert CAME_BACK in both.primary.log_text()
    both.check_the_primary()
    assert not list(both.primary.data_path.glob("*.back"))
    both.check_the_promoted(EVERYTHING)


def test_a_start_that_begins_again_frees_what_it_had_loaded(pair: MakePair) -> None:
    """Whether it begins again before it serves, or when a standby has come back."""
    count = 30_000
    both = pair("--accept-standbys")
    both.primary.create("deferred", "c")
    publish_deferred(both.primary, "deferred", count)
    wait_until_it_has_all(both.primary)
    both.primary.restart()

    def loaded_bytes() -> int:
        both.primary.wait_for_channel("deferred", "c", deferred_count=count)
        wait_until_it_has_all(both.primary)
        return resident_bytes(both.primary)

    once = loaded_bytes()
    both.primary.kill()
    remove(0)(both.primary)
    both.primary.start()
    assert CAME_BACK in both.primary.log_text()
    assert loaded_bytes() - once < 180 * count, "260 when it kept both"
    both.standby.stop()
    both.primary.kill()
    remove(0)(both.primary)
    both.primary.start()
    both.standby.start()
    wait_until_it_follows(both.standby)
    assert CAME_BACK in both.primary.log_text()
    assert loaded_bytes() - once < 180 * count
    both.check_the_primary()


def test_what_is_lost_comes_back_when_the_standby_is_back(pair: MakePair) -> None:
    """At the start it was away: then it is lost, and counted."""
    both = pair("--accept-standbys")
    both.standby.stop()
    both.primary.kill()
    cut(1)(both.primary)
    remove(0)(both.primary)
    both.primary.start()
    assert "cannot ask a standby for what may be missing here" in both.primary.log_text()
    lost = (both.primary.channel_stats("t", "c") or {})["lost_count"]
    assert lost > 200
    publish(both.primary, ALL, ALL + BATCH)
    both.standby.start()
    wait_until_it_follows(both.standby)
    assert "nsqd is loaded again to get them back" in both.primary.log_text()
    both.check_the_primary(ALL + BATCH)
    both.check_the_promoted([body(number) for number in range(ALL + BATCH)])


def test_the_end_of_a_log_comes_back_if_nothing_was_written_since(pair: MakePair) -> None:
    both = pair("--accept-standbys")
    both.standby.stop()
    both.primary.kill()
    cut(-1)(both.primary)
    both.primary.start()
    both.standby.start()
    wait_until_it_follows(both.standby)
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


@pytest.mark.parametrize("count", [1, 30], ids=["less", "more"])
def test_an_end_that_was_overtaken_is_set_aside_and_counted(pair: MakePair, count: int) -> None:
    """Other messages have its numbers: two histories are never merged."""
    both = pair("--accept-standbys")
    both.standby.stop()
    both.primary.kill()
    cut(-1)(both.primary)
    both.primary.start()
    kept = (both.primary.channel_stats("t", "c") or {})["depth"]
    assert kept == ALL - BATCH
    publish(both.primary, ALL, ALL + count * BATCH)
    both.standby.start()
    wait_until_it_follows(both.standby)

    def counted() -> bool:
        return bool(figures_of(both.standby)["set_aside_messages"] == ALL - kept)

    wait_until(counted, DEADLINE_S, "the messages to be counted")
    expected = [body(number) for number in (*range(kept), *range(ALL, ALL + count * BATCH))]
    set_aside = [path for path in both.standby.data_path.glob("standby-*") if any(path.glob("*.log"))]
    both.primary.kill()
    promote(both.standby)
    assert sorted(consume_all(both.standby, "t", "c")) == expected
    with NsqdProcess(_copy(set_aside[0], both.folder / "aside")).start() as aside:
        assert set(EVERYTHING[kept:]) <= set(consume_all(aside, "t", "c"))


def _copy(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        if path.name != "nsqd.epochs":
            (target / path.name).write_bytes(path.read_bytes())
    return target


def test_two_standbys_one_of_them_behind(pair: MakePair) -> None:
    both = pair("--standby-acks=1")
    other = both.follow("c")
    other.stop()
    publish(both.primary, ALL, 2 * ALL)
    wait_until_it_has_all(both.primary)
    other.start()  # it cannot follow: the primary is killed now
    both.primary.kill()
    for path in log_files(both.primary):
        path.unlink()
    both.primary.start()
    both.check_the_primary(2 * ALL)
    wait_until_it_follows(other)
    both.check_the_promoted([body(number) for number in range(2 * ALL)])


def test_it_is_killed_while_it_gets_it_back(pair: MakePair) -> None:
    both = pair("--standby-acks=1")
    both.primary.kill()
    for place in (2, 1):
        log_files(both.primary)[place].unlink()
    cut(0)(both.primary)
    for started in ("asking", "NSQ: closing topics", CAME_BACK):
        both.primary.launch()
        wait_until(lambda text=started: text in both.primary.log_text() or is_up(both.primary), DEADLINE_S, started)
        os.kill(both.primary.pid, signal.SIGKILL)
        both.primary.wait()
    both.primary.start()
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


def is_up(nsqd: NsqdProcess) -> bool:
    return "listening" in nsqd.log_text()


def test_a_standby_that_was_promoted_gives_nothing_back(pair: MakePair) -> None:
    both = pair("--accept-standbys")
    both.primary.kill()
    promote(both.standby)
    remove(0)(both.primary)
    both.primary.start()
    assert "was promoted" in both.primary.log_text()
    assert CAME_BACK not in both.primary.log_text()
    wait_until_it_follows(both.primary)
    assert sorted(consume_all(both.standby, "t", "c")) == EVERYTHING


@pytest.mark.parametrize("flags", [(), ("--accept-standbys",)], ids=["no group", "away"])
def test_a_start_goes_on_without_an_answer(tmp_path: Path, processes: list[NsqdProcess], flags: tuple[str, ...]) -> None:
    """A standby of an earlier version refuses to be asked, as an nsqd that is in no group does."""
    other = NsqdProcess(tmp_path / "other").start()
    processes.append(other)
    nsqd = NsqdProcess(tmp_path / "a", "--accept-standbys").start()
    processes.append(nsqd)
    nsqd.create("t", "c")
    nsqd.post("/pub?topic=t", b"x")
    nsqd.kill()
    (closed,) = free_ports(1)
    asked = closed if flags else other.tcp_port
    write_checked(nsqd.data_path / STANDBYS_FILE, {"standbys": [[f"127.0.0.1:{asked}"]]})
    nsqd.start()
    assert f"cannot ask a standby for what may be missing here - 127.0.0.1:{asked}: " in nsqd.log_text()
    assert consume_all(nsqd, "t", "c") == [b"x"]


def standby_that_fails(folder: Path, spoil: Callable[[int, bytes], bytes | None]) -> AbstractContextManager[HostilePrimary]:
    """A member that gives what is in a folder, but `spoil` changes the n-th answer with bytes, or ends it all with None."""
    saved = read_epochs(folder)
    assert saved is not None
    server = FetchServer(folder, None, lambda: NodeState(0, is_complete=True), lambda topic: saved.logs.get(topic, ()))
    count = 0

    def script(request: dict[str, Any]) -> Iterator[bytes]:
        nonlocal count
        found = server._work(json.dumps(request).encode())()
        answer: bytes | None = found if isinstance(found, bytes) else found()
        if request["fetch"] == "bytes":
            count += 1
            answer = spoil(count, answer or b"")
        if answer is None:
            fake.close()
            raise OSError("it is gone")
        yield answer

    fake = HostilePrimary(script)
    return closing(fake)


SPOILS: dict[str, tuple[Callable[[int, bytes], bytes | None], int]] = {
    "ends": (lambda number, answer: answer if number < 2 else None, 220),
    "is damaged": (lambda _, answer: answer[:300] + bytes([answer[300] ^ 8]) + answer[301:], 60),
}


@pytest.mark.parametrize(("spoil", "lost"), SPOILS.values(), ids=SPOILS)
def test_a_standby_that_fails_gives_what_is_right(pair: MakePair, spoil: Callable[[int, bytes], bytes | None], lost: int) -> None:
    """The rest is lost, until another one is there."""
    both = pair("--standby-acks=1", "--standby-on-timeout=alone")
    both.standby.stop()
    both.primary.stop()
    remove(0, 1, 2)(both.primary)
    with standby_that_fails(both.standby.data_path, spoil) as fake:
        addresses = [[f"127.0.0.1:{fake.port}"], [f"127.0.0.1:{both.standby.tcp_port}"]]
        write_checked(both.primary.data_path / STANDBYS_FILE, {"standbys": addresses})
        both.primary.start()
    assert (both.primary.channel_stats("t", "c") or {})["lost_count"] == lost
    both.standby.start()
    wait_until_it_follows(both.standby)
    wait_until(lambda: not (both.primary.channel_stats("t", "c") or {}).get("lost_count"), DEADLINE_S, "what was lost")
    both.check_the_primary()
    both.check_the_promoted(EVERYTHING)


def test_with_a_secret_and_tls(tmp_path: Path, processes: list[NsqdProcess]) -> None:
    pem = make_certificates(tmp_path / "pem")
    flags = (
        secret_file(tmp_path / "secret"),
        "--standby-acks=1",
        *pem.server_flags,
        "--https-address=127.0.0.1:0",
        "--standby-tls",
        f"--standby-tls-root-ca-file={pem.authority}",
    )
    both = Pair(tmp_path, processes, *flags)
    both.primary.kill()
    remove(0)(both.primary)
    both.primary.start()
    assert CAME_BACK in both.primary.log_text()
    both.check_the_primary()


def test_the_holder_of_a_lease_gets_it_back(tmp_path: Path, processes: list[NsqdProcess]) -> None:
    """Whoever of the two takes the lease has everything."""
    with FakeEtcd() as etcd:
        ports = free_ports(4)
        flags = (*FLAGS, f"--lease=etcd://{etcd.address}/orders", "--lease-ttl=2s", "--standby-acks=1")
        NsqdProcess(tmp_path / "a").start().stop()
        first = NsqdProcess(tmp_path / "a", *flags, ports=(ports[0], ports[1])).start()
        processes.append(first)
        second = NsqdProcess(tmp_path / "b", *flags, ports=(ports[2], ports[3])).start()
        processes.append(second)
        wait_until_it_follows(second)
        first.create("t", "c")
        publish(first, 0, ALL)
        wait_until_it_has_all(first)
        wait_until(lambda: len(etcd.note("orders")["members"]) == 2, DEADLINE_S, "the standby to be in sync")
        os.kill(second.pid, signal.SIGSTOP)  # so that the first is the first to compete
        first.kill()
        remove(0)(first)
        first.launch()
        wait_until(lambda: "LEASE: waiting for" in first.log_text(), DEADLINE_S, "the first to compete")
        os.kill(second.pid, signal.SIGCONT)
        primary = wait_until(lambda: next((each for each in (first, second) if is_primary(each)), None), DEADLINE_S, "a primary")
        assert primary is not None
        assert sorted(consume_all(primary, "t", "c")) == EVERYTHING


def test_the_standbys_are_remembered(pair: MakePair) -> None:
    both = pair("--accept-standbys")
    _, _, content = (both.primary.data_path / STANDBYS_FILE).read_bytes().partition(b"\n")
    assert json.loads(content) == {"standbys": [[f"127.0.0.1:{both.standby.tcp_port}"]]}
