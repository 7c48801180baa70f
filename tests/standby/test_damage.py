"""Damage in the files of a primary or its standby: found soon, shown everywhere, and mended from the other half."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.standby.conftest import Start
from tests.support.harm import flip, mount, put_aside, put_away
from tests.support.member import secret_file
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    consume_all,
    figures_of,
    promote,
    wait_until_it_follows,
    wait_until_it_has_all,
)
from tests.support.sweeps import sample, sampled
from tests.support.wire import bodies

pytestmark = pytest.mark.ours

BODY_BYTES = 100
RECORD_BYTES = RECORD_HEADER_BYTES + 4 + BODY_BYTES
COUNT = 300
FLAGS = ("--max-bytes-per-file=16000", "--accept-standbys")
FAST = "--scrub-rate=50MB"


BODIES = [b"%0*d" % (BODY_BYTES, number) for number in range(COUNT)]


@pytest.fixture
def primary(start, request) -> NsqdProcess:
    """With 300 records in three files."""
    primary = start("a", *FLAGS, *getattr(request, "param", (FAST,)))
    primary.create("t", "c")
    primary.pub("t", *BODIES)
    return primary


@pytest.fixture
def follow(primary, follow) -> Start:
    """follow(*flags) starts a standby, which has everything."""

    def start(*flags: str, wait: bool = True) -> NsqdProcess:
        standby = follow(primary, *FLAGS, *flags, wait=wait)
        if wait:
            wait_until_it_has_all(primary)
        return standby

    return start


def logs(nsqd: NsqdProcess) -> list[Path]:
    return sorted(nsqd.data_path.glob("t.*.log"))


def record_at(index: int) -> int:
    """The place of a byte in the body of a record."""
    return FILE_HEADER_BYTES + index * RECORD_BYTES + 90


def is_counted(primary: NsqdProcess) -> bool:
    topic = primary.topic_stats("t") or {}
    return bool(topic.get("restored_files") or topic.get("repaired_bytes"))


def damage_lines(nsqd: NsqdProcess, count: int) -> list[str]:
    """The lines about damage in the log of an nsqd, as soon as there are so many."""

    def lines() -> list[str]:
        return [line for line in nsqd.log_text().splitlines() if "damaged bytes in" in line]

    wait_until(lambda: len(lines()) >= count, DEADLINE_S, "the log to name the damage")
    assert len(lines()) == count
    return lines()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def replace(path: Path) -> None:
    other = path.with_name("other")
    shutil.copyfile(path, other)
    other.rename(path)


CHANGES: dict[str, Callable[[Path], object]] = {"removed": Path.unlink, "cut": cut, "replaced": replace}


# To a closed file, and to the last one.
changes = pytest.mark.parametrize(
    ("how", "place"),
    sampled(itertools.product(CHANGES, (0, -1)), ("removed", 0), ("cut", -1), ("replaced", 0)),
)


@changes
def test_a_file_that_another_program_changes_is_copied_again(how, place, primary, follow):
    standby = follow("--scrub-rate=0")
    path = logs(standby)[place]
    CHANGES[how](path)
    wait_until(lambda: figures_of(standby)["changed_files"] == 1, DEADLINE_S, "the standby to see it")
    wait_until_it_follows(standby)
    lines = [
        line for line in standby.log_text().splitlines() if path.name in line and "it is copied again" in line
    ]
    assert len(lines) == 1
    assert f"was {how}" in lines[0]
    assert figures_of(standby)["damaged_files"] == 0
    assert "nsqd_copy_changed_files_total 1.0" in standby.http("GET", "/metrics").text
    primary.post("/pub?topic=t", b"later")
    wait_until_it_has_all(primary)
    primary.kill()
    promote(standby)
    assert consume_all(standby, "t", "c") == [*BODIES, b"later"]


@pytest.mark.parametrize("name", ["t:c.cursor", "nsqd.dat"])
def test_a_small_file_that_is_removed_is_copied_again(name, primary, follow):
    standby = follow()
    before = (standby.data_path / name).read_bytes()
    (standby.data_path / name).unlink()
    wait_until(lambda: (standby.data_path / name).exists(), DEADLINE_S, f"{name} to come back")
    assert (standby.data_path / name).read_bytes() == before
    wait_until_it_follows(standby)


def test_while_the_primary_is_away_the_standby_says_what_it_lacks(primary, follow):
    standby = follow()
    path = logs(standby)[1]
    primary.kill()
    path.unlink()
    wait_until(lambda: path.name in figures_of(standby)["error"], DEADLINE_S, "the standby to see it")
    assert figures_of(standby)["damaged_files"] == 1
    assert figures_of(standby)["state"] == "connecting"
    assert path.name in standby.http("GET", "/ping").text
    assert "nsqd_copy_damaged_files 1.0" in standby.http("GET", "/metrics").text


def test_damage_of_the_primary_is_found_as_it_arrives(primary, follow):
    """A new standby does not take flipped bits for good ones. It has everything else."""
    primary.stop()
    for path in logs(primary)[:2]:
        flip(path, record_at(3), record_at(7))
    flip(logs(primary)[2], record_at(0))
    primary.start()
    standby = follow("--scrub-rate=0", wait=False)
    wait_until(
        lambda: figures_of(standby)["damaged_bytes"] == 5 * RECORD_BYTES,
        DEADLINE_S,
        "the standby to count it",
    )
    wait_until(lambda: figures_of(standby)["state"] == "damaged", DEADLINE_S, "the first copy to end")
    assert figures_of(standby)["damaged_files"] == 3
    assert "the copy is damaged: t." in standby.http("GET", "/ping").text
    lines = damage_lines(standby, 3)
    assert all("are not repaired: the primary has them neither" in line for line in lines)


def test_a_standby_repairs_its_bytes_from_its_primary(primary, follow):
    """Also a header; both are the files of before then."""
    standby = follow(FAST)
    path = logs(standby)[1]
    before = path.read_bytes()
    flip(path, 9, record_at(3), record_at(4))
    wait_until(lambda: path.read_bytes() == before, DEADLINE_S, "the repair")
    damaged = FILE_HEADER_BYTES + 2 * RECORD_BYTES
    wait_until(lambda: figures_of(standby)["repaired_bytes"] == damaged, DEADLINE_S, "its count")
    assert figures_of(standby)["damaged_bytes"] == damaged
    assert standby.stats()["scrub"]["repaired_bytes"] == damaged
    assert f"nsqd_scrub_repaired_bytes_total {damaged}.0" in standby.http("GET", "/metrics").text
    assert figures_of(standby)["state"] == "following"
    assert standby.http("GET", "/ping").text == "OK"
    (line,) = damage_lines(standby, 1)
    assert path.name in line
    assert "all are repaired from the primary" in line


def test_a_primary_repairs_its_bytes_from_its_standby(primary, follow):
    follow("--scrub-rate=0")
    files = logs(primary)
    before = [path.read_bytes() for path in files]
    for path in files:
        flip(path, record_at(0), record_at(2))
    flip(files[0], 9)
    wait_until(lambda: [path.read_bytes() for path in files] == before, DEADLINE_S, "the repair")
    damaged = FILE_HEADER_BYTES + 2 * len(files) * RECORD_BYTES
    wait_until(lambda: primary.stats()["scrub"]["repaired_bytes"] == damaged, DEADLINE_S, "its count")
    assert primary.stats()["scrub"]["damaged_bytes"] == damaged
    assert primary.topic_stats("t")["repaired_bytes"] == damaged
    lines = damage_lines(primary, len(files))
    assert all("repaired from a standby" in line for line in lines)
    assert list(primary.data_path.glob("*.damaged")) == []
    assert consume_all(primary, "t", "c") == BODIES


def test_a_standby_is_asked_where_its_connection_comes_from(start, tmp_path):
    """No one else resolves its --broadcast-address, as with the host name of a container."""
    flags = (*FLAGS, secret_file(tmp_path / "secret"))
    primary = start("a", *flags, FAST)
    primary.create("t", "c")
    primary.pub("t", *BODIES)
    following = f"--standby-of={primary.tcp_address}"
    wait_until_it_follows(start("b", *flags, following, "--broadcast-address=standby.invalid"))
    path = logs(primary)[0]
    before = path.read_bytes()
    flip(path, record_at(0))
    wait_until(lambda: path.read_bytes() == before, DEADLINE_S, "the repair")


@pytest.mark.calm  # on a slow disk, some of it was read before it is damaged
@pytest.mark.parametrize("primary", [("--scrub-rate=0", "--mem-queue-size=0")], indirect=True)
def test_a_consumer_gets_what_was_damaged_where_it_reads(primary, follow):
    """Without a scrub. The messages come a moment later, each once."""
    follow("--scrub-rate=0", "--mem-queue-size=0")
    for path in logs(primary)[:3]:
        flip(path, record_at(1), record_at(2))
    assert sorted(consume_all(primary, "t", "c")) == BODIES
    wait_until(
        lambda: primary.stats()["scrub"]["repaired_bytes"] >= 6 * RECORD_BYTES,
        what="the count of what was repaired",
    )
    assert primary.stats()["scrub"]["repaired_bytes"] == 6 * RECORD_BYTES
    assert "lost_count" not in primary.channel_stats("t", "c")


def test_a_standby_keeps_what_is_damaged_at_the_end_of_a_file_of_its_primary(primary, follow):
    """Both were stopped: the end of a file decides whether it must be copied again, and the copy has the only good bytes."""
    standby = follow()
    primary.kill()
    standby.kill()
    path = logs(primary)[0]
    before = path.read_bytes()
    flip(path, len(before) - 20)
    primary.start()
    again = follow()
    wait_until(lambda: path.read_bytes() == before, DEADLINE_S, "the repair")
    assert sorted(consume_all(primary, "t", "c")) == BODIES
    assert not list(again.data_path.glob("standby-removed-*"))


@changes
def test_a_primary_completes_its_files_from_its_standby(how, place, primary, follow):
    follow("--scrub-rate=0")
    path = logs(primary)[place]
    end = FILE_HEADER_BYTES + RECORD_BYTES * (
        (path.stat().st_size - FILE_HEADER_BYTES) // RECORD_BYTES if place == 0 else 3
    )
    before = path.read_bytes()[:end]
    CHANGES[how](path)
    # The scrub may find that a file was cut, too, and complete it first.
    wait_until(lambda: is_counted(primary), DEADLINE_S, "the count")
    wait_until(lambda: path.exists() and path.read_bytes()[:end] == before, DEADLINE_S, "the repair")
    primary.post("/pub?topic=t", b"later")
    primary.restart()
    assert sorted(consume_all(primary, "t", "c")) == [*BODIES, b"later"]
    assert "missing_count" not in primary.topic_stats("t")


def test_what_was_lost_without_a_standby_is_delivered_when_one_is_back(primary, follow):
    follow("--scrub-rate=0").stop()
    primary.create("t", "late")  # it keeps the file
    primary.post("/channel/seek?topic=t&channel=late&to=earliest")
    primary.restart()
    flip(logs(primary)[0], record_at(1), record_at(2))
    assert sorted(bodies(primary.consume("t", "c", COUNT - 2))) == [*BODIES[:1], *BODIES[3:]]
    assert primary.channel_stats("t", "c")["lost_count"] == 2
    follow("--scrub-rate=0")
    assert sorted(bodies(primary.consume("t", "c", 2))) == BODIES[1:3]
    assert "lost_count" not in primary.channel_stats("t", "c")


def test_what_was_damaged_while_a_standby_was_stopped_is_repaired(primary, follow):
    """In its place: each half has what the other one lacks, and a new copy would take the damage of the primary."""
    standby = follow("--scrub-rate=0")
    standby.stop()
    path = logs(standby)[0]
    before = path.read_bytes()
    flip(path, record_at(1), record_at(5))
    standby.start()
    wait_until(lambda: path.read_bytes() == before, DEADLINE_S, "the repair")
    wait_until_it_follows(standby)
    assert figures_of(standby)["repaired_bytes"] == 2 * RECORD_BYTES


# ---- the data path of a standby


@pytest.mark.parametrize("harm", [mount, *sample(put_aside, put_away)])
def test_a_standby_copies_nothing_to_another_directory(harm, primary, follow):
    standby = follow("--sync-every=1")
    bring_back = harm(standby.data_path)
    try:
        primary.post("/pub?topic=t", b"later")
        wait_until(lambda: "cannot follow" in standby.log_text(), DEADLINE_S, "the standby to see it")
        moved = "is not the directory that this nsqd has loaded"
        assert moved in figures_of(standby)["error"]
        assert standby.http("GET", "/ping").status == 500
        assert standby.http("POST", "/promote").text == '{"message":"STANDBY_INCOMPLETE"}'
        found = list(standby.data_path.iterdir()) if standby.data_path.exists() else []
        assert found == [], "nothing is written there"
    finally:
        bring_back()
    wait_until_it_follows(standby)
    wait_until_it_has_all(primary)
    primary.kill()
    promote(standby)
    assert consume_all(standby, "t", "c") == [*BODIES, b"later"]
    assert "it is copied again" not in standby.log_text()
