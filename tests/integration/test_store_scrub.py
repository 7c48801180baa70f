"""Damaged objects of a store: `--check-data --store` names them with a remedy, and a running nsqd repairs them from its disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nsq_apps.nsqd import main
from nsqd_py.objects.calls import StoreRefused
from nsqd_py.store import checking
from nsqd_py.store.checking import check_store
from nsqd_py.store.layout import HEAD_NAME, Head
from tests.support.harm import flip
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.standby_processes import consume_all

pytestmark = pytest.mark.ours

DEADLINE_S = 60.0
BODIES = [b"%03d" % number + bytes(100) for number in range(200)]
FLAGS = ("--max-bytes-per-file=8000", "--retention-bytes=10MB", "--store-interval=50ms", "--scrub-rate=0")
FAST = "--store-scrub-requests=100000000"

Start = Callable[..., NsqdProcess]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def nsqd(tmp_path: Path, store: Path) -> Iterator[Start]:
    """`nsqd(*flags)` starts the nsqd of one data path; with messages, of which sealed files are objects, at the first time."""
    made: list[NsqdProcess] = []

    def start(*flags: str) -> NsqdProcess:
        one = NsqdProcess(tmp_path / "data", f"--store=file://{store}", *FLAGS, *flags).start()
        made.append(one)
        if len(made) == 1:
            one.create("t", "c")
            one.publish("t", BODIES)
        wait_until(lambda: is_stored(one), DEADLINE_S, "the store to have everything")
        wait_until(lambda: named_files(store) >= 3, DEADLINE_S, "log files in the store")
        return one

    yield start
    for one in made:
        one.destroy()


def statistics(nsqd: NsqdProcess) -> dict[str, Any]:
    found: dict[str, Any] = nsqd.stats()["store"]
    return found


def is_stored(nsqd: NsqdProcess) -> bool:
    shown = statistics(nsqd)
    return shown["state"] == "storing" and not shown["lag_ms"]


def named_files(store: Path) -> int:
    """Return how many log files the rounds name."""
    return check_store(f"file://{store}", "", store).files


def files(store: Path) -> list[Path]:
    return sorted((store / "files").rglob("*.log"))


def base_of(store: Path) -> int:
    return Head.decode((store / HEAD_NAME).read_bytes()).base


def wait_until_repaired(nsqd: NsqdProcess) -> dict[str, Any]:
    def is_repaired() -> bool:
        shown = statistics(nsqd)
        return shown["damaged_objects"] == shown["repaired_objects"] == 1

    wait_until(is_repaired, DEADLINE_S, "the repair")
    shown = statistics(nsqd)
    assert shown["damage"] == ""
    return shown


def test_a_damaged_log_file_is_put_again_from_the_disk(nsqd, store):
    running = nsqd(FAST)
    path = files(store)[0]
    before = path.read_bytes()
    flip(path, 500)
    shown = wait_until_repaired(running)
    assert path.read_bytes() == before
    assert shown["scrub"]["damaged_objects"] == shown["scrub"]["repaired_objects"] == 1
    name = f"files/t/{path.name}"
    assert (
        f"{name} is damaged: its checksum is wrong; it is put again from t.{0:020d}.log" in running.log_text()
    )
    metrics = running.http("GET", "/metrics").text
    assert "nsqd_store_damaged_objects_total 1.0" in metrics
    assert "nsqd_store_repaired_objects_total 1.0" in metrics
    wait_until(lambda: statistics(running)["scrub"]["last_pass"], DEADLINE_S, "a pass")


def test_a_file_of_an_earlier_epoch_is_put_again_under_the_own_one(nsqd, store):
    nsqd().kill()
    path = files(store)[0]
    flip(path, 500)
    running = nsqd(FAST)
    wait_until_repaired(running)
    wait_until(
        lambda: check_store(f"file://{store}", "", running.data_path).is_well,
        DEADLINE_S,
        "the new object to be named",
    )
    (again,) = [each for each in files(store) if each.name.startswith(path.name[:29]) and each != path]
    assert again.name.endswith("-2.log")
    running.kill()
    assert checked(store, running).startswith("0")


def test_a_file_that_the_store_does_not_give_is_named_and_the_others_are_checked(nsqd, store, monkeypatch):
    """As one in an archive class, or whose key is lost."""
    nsqd().stop()
    objects = checking.open_objects(f"file://{store}", "")
    refused = str(files(store)[1].relative_to(store))
    missing = str(files(store)[2].relative_to(store))
    (store / missing).unlink()

    class Refusing(Mock):
        def get_range(self, name: str, start: int, end: int) -> bytes:
            if name == refused:
                raise StoreRefused(f"{name}: InvalidObjectState: archived")
            return objects.get_range(name, start, end)

    monkeypatch.setattr(checking, "open_objects", lambda *_: Refusing(wraps=objects))
    report = check_store(f"file://{store}", "", store)
    assert [each.name for each in report.damaged] == [refused, missing]
    assert report.damaged[0].damage == f"{refused} cannot be read: InvalidObjectState: archived"
    assert not report.problem


def test_a_deleted_log_file_is_put_again(nsqd, store):
    running = nsqd(FAST)
    path = files(store)[0]
    before = path.read_bytes()
    path.unlink()
    wait_until_repaired(running)
    assert path.read_bytes() == before


def test_a_damaged_round_is_replaced_by_a_new_base(nsqd, store):
    running = nsqd(FAST)
    base = base_of(store)
    flip(store / f"rounds/{base:016x}", 70)
    wait_until_repaired(running)
    assert base_of(store) > base
    assert list((store / "aside/rounds").iterdir())
    running.kill()
    assert checked(store, running).startswith("0")


def test_a_damaged_head_is_written_again(nsqd, store):
    running = nsqd(FAST)
    before = (store / HEAD_NAME).read_bytes()
    flip(store / HEAD_NAME, before.index(b"epoch") + 8, mask=1)
    wait_until(lambda: (store / HEAD_NAME).read_bytes() == before, DEADLINE_S, "the head")
    wait_until_repaired(running)
    assert "head.json is damaged: it names no writer; set aside, and written again" in running.log_text()
    assert running.is_healthy()


def test_what_only_the_store_has_is_counted_and_named(nsqd, store):
    running = nsqd(FAST, "--retention-bytes=1", "--store-retention-bytes=10MB")
    assert len(consume_all(running, "t", "c")) == len(BODIES)
    local = running.data_path / f"t.{0:020d}.log"
    wait_until(lambda: not local.exists(), DEADLINE_S, "the disk to drop what the store has")
    path = files(store)[0]
    flip(path, 500)
    wait_until(lambda: statistics(running)["damaged_objects"], DEADLINE_S, "the scrub to find it")
    shown = statistics(running)
    assert shown["repaired_objects"] == 0
    text = (
        f"files/t/{path.name} is damaged: its checksum is wrong; it cannot be repaired: only the store has it"
    )
    assert shown["damage"] == text
    assert running.log_text().count(text) == 1
    flip(path, 500)
    wait_until(
        lambda: statistics(running)["repaired_objects"], DEADLINE_S, "the scrub to see that it is back"
    )


# ---- --check-data


def checked(store: Path, nsqd: NsqdProcess, *flags: str) -> str:
    """Return the exit status of the check, and what it has printed."""
    status = main((f"--check-data={nsqd.data_path}", f"--store=file://{store}", *flags))
    return f"{status}\n"


def test_check_data_names_each_damaged_object_with_a_remedy(nsqd, store, capsys):
    running = nsqd()
    assert running.stop() == 0
    assert checked(store, running).startswith("0")
    assert "\nthe store is well\n" in capsys.readouterr().out
    first, *_, last = files(store)
    flip(first, 500)
    last.unlink()
    assert checked(store, running).startswith("1")
    text = capsys.readouterr().out
    assert (
        f"files/t/{first.name} is damaged: its checksum is wrong; nsqd puts it again from t.{0:020d}.log: start it"
        in text
    )
    assert f"files/t/{last.name} is missing: it was deleted or lost; nsqd puts it again from " in text
    assert checked(store, running, "--log-format=json").startswith("1")
    report = json.loads(capsys.readouterr().out)["store"]
    assert not report["is_well"]
    assert {each["name"] for each in report["damaged"]} >= {f"files/t/{first.name}", f"files/t/{last.name}"}
    again = nsqd(FAST)
    wait_until(lambda: statistics(again)["repaired_objects"] == 2, DEADLINE_S, "both files")
    wait_until(
        lambda: check_store(f"file://{store}", "", again.data_path).is_well,
        DEADLINE_S,
        "the new objects to be named",
    )


def test_check_data_names_a_damaged_round_and_the_next_start_replaces_it(nsqd, store, capsys):
    running = nsqd()
    running.kill()
    base = base_of(store)
    flip(store / f"rounds/{base:016x}", 70)
    assert checked(store, running).startswith("1")
    name = f"rounds/{base:016x}"
    text = f"{name} is damaged: its checksum is wrong; nsqd writes it again from this data path: start it"
    assert text in capsys.readouterr().out
    again = nsqd()
    wait_until(lambda: base_of(store) > base, DEADLINE_S, "a new base")
    again.kill()
    assert checked(store, again).startswith("0")


def test_check_data_names_a_damaged_head_and_the_next_start_writes_it(nsqd, store, capsys):
    running = nsqd()
    running.kill()
    data = (store / HEAD_NAME).read_bytes()
    # Not in the writer's id, which might be none any more: that has another sentence.
    flip(store / HEAD_NAME, data.index(b"127.0.0.1"), mask=1)
    assert checked(store, running).startswith("1")
    text = capsys.readouterr().out
    assert (
        "head.json is damaged: its checksum is wrong; nsqd writes it again from this data path: start it"
        in text
    )
    again = nsqd()
    assert statistics(again)["damaged_objects"] == 1
    again.kill()
    assert checked(store, again).startswith("0")


def test_check_data_says_why_a_store_could_not_be_checked(nsqd, store, capsys):
    running = nsqd()
    running.kill()
    (store / HEAD_NAME).unlink()
    assert checked(store, running).startswith("1")
    assert "could not be checked: head.json is missing" in capsys.readouterr().out
