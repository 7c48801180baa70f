"""An nsqd with a store: its machine, its disk or the store is lost, and nothing that was acknowledged is."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nsqd_py.broker.state_files import BACKUP_FILE, CLOCK_FILE, METADATA_FILE, read_epochs
from nsqd_py.diskqueue.journals.epochs import EPOCHS_FILE
from nsqd_py.feed.pieces import TopicsListed
from nsqd_py.objects.opening import open_objects
from nsqd_py.store.ownership import CLAIMS_FILE, Claims, claim
from nsqd_py.store.rounds import piece_frame
from tests.support.bucket_faults import FaultProxy, refused
from tests.support.buckets import Bucket, MotoServer, moto
from tests.support.faulty_nsqd import FaultyNsqd
from tests.support.harm import flip
from tests.support.nsqd_process import NsqdProcess, StoreNsqd, wait_until
from tests.support.standby_processes import consume_all
from tests.support.tool_process import run_tool
from tests.support.wire import pub
from tests.torture.store_losses import Publisher

pytestmark = pytest.mark.ours

DEADLINE_S = 60.0
ACKS = "--store-acks=1"

Machine = Callable[..., NsqdProcess]


class FaultyStoreNsqd(FaultyNsqd):
    """An nsqd with a store, on a disk that fails."""

    is_executed = True


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The URL of a store in a directory."""
    return f"file://{tmp_path / 'store'}"


@pytest.fixture
def machine(tmp_path: Path, store: str) -> Iterator[Machine]:
    """`machine(name, *flags)` is an nsqd with the store; it is not started."""
    made: list[NsqdProcess] = []

    def make(name: str, *flags: str, url: str = store) -> NsqdProcess:
        made.append(StoreNsqd(tmp_path / name, f"--store={url}", "--store-interval=100ms", *flags))
        return made[-1]

    yield make
    for nsqd in made:
        nsqd.destroy()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with moto(tmp_path_factory.mktemp("moto")) as running:
        yield running


@pytest.fixture
def bucket(server: MotoServer, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = server.make_bucket()
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def wait_until_stored(nsqd: NsqdProcess) -> None:
    """Return when the store has everything that there is, with the journals."""
    time.sleep(0.2)  # the journals are written every 50 ms
    wait_until(lambda: statistics(nsqd)["lag_ms"] == 0 and statistics(nsqd)["state"] == "storing", DEADLINE_S)


def statistics(nsqd: NsqdProcess) -> dict:
    found: dict = nsqd.stats()["store"]
    return found


def lose(nsqd: NsqdProcess) -> None:
    """The machine burns, with its disk."""
    nsqd.kill()
    shutil.rmtree(nsqd.data_path)


def test_everything_comes_back_on_another_machine(machine, store):
    """Channels at their positions, deferred messages, pauses; log files in the store as objects, and in rounds only."""
    nsqd = machine("a", ACKS, "--max-bytes-per-file=1500000").start()
    nsqd.create("orders", "fast", "slow")
    nsqd.create("paused", "c")
    nsqd.post("/topic/pause?topic=paused")
    bodies = [b"%04d" % number + os.urandom(10_000) for number in range(400)]
    nsqd.publish("orders", bodies, batch=20)
    nsqd.dpub("orders", 3_600_000, b"deferred")
    nsqd.mpub("paused", [b"held"])
    nsqd.mpub("lone", [b"without a channel"])
    assert len(consume_all(nsqd, "orders", "fast")) == 400
    wait_until_stored(nsqd)
    lose(nsqd)

    again = machine("b", f"--restore-from={store}").start()
    assert sorted(consume_all(again, "orders", "slow")) == bodies
    assert again.channel_stats("orders", "slow")["deferred_count"] == 1
    assert again.channel_stats("orders", "fast")["depth"] == 0
    assert again.topic_stats("paused")["paused"]
    again.create("lone", "first")
    assert consume_all(again, "lone", "first") == [b"without a channel"]
    assert " is gone" not in again.log_text()
    assert statistics(again)["epoch"] == 2


def test_a_message_that_was_acknowledged_a_moment_ago_is_there(machine, store):
    nsqd = machine("a", ACKS, "--store-interval=1h").start()
    nsqd.create("t", "c")
    for round_number in range(3):
        nsqd.pub("t", b"%d" % round_number)
    lose(nsqd)
    again = machine("b", f"--restore-from={store}").start()
    again.create("t", "c")  # its creation needed no answer of the store
    assert len(consume_all(again, "t", "c")) == 3


def test_the_same_command_serves_an_empty_disk_and_its_own(machine, store):
    flags = (ACKS, f"--restore-from={store}")
    first = machine("a", ACKS).start()
    first.create("t", "c")
    first.pub("t", b"1")
    lose(first)
    nsqd = machine("b", *flags).start()
    nsqd.pub("t", b"2")
    nsqd.restart(clean=False)
    assert sorted(consume_all(nsqd, "t", "c")) == [b"1", b"2"]


def test_a_stop_puts_what_was_finished_last(machine, store, tmp_path):
    nsqd = machine("a", "--store-interval=1h").start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"finished", b"not finished")
    with nsqd.consumer("t", "c", 1) as client:
        client.fin(client.message())
        client.message()
        assert nsqd.stop() == 0
    head = json.loads((tmp_path / "store/head.json").read_text())
    assert head["closed"]
    shutil.rmtree(nsqd.data_path)
    again = machine("b", f"--restore-from={store}").start()
    assert consume_all(again, "t", "c") == [b"not finished"]
    assert not json.loads((tmp_path / "store/head.json").read_text())["closed"]


def test_a_base_follows_a_burst_although_nothing_comes_after_it(machine, tmp_path):
    """Else a restoration had to read all rounds of the burst."""
    nsqd = machine("a", "--store-interval=1s").start()
    nsqd.create("t")
    wait_until_stored(nsqd)

    def base() -> int:
        return int(json.loads((tmp_path / "store/head.json").read_text())["base"])

    before = base()
    nsqd.publish("t", [b"%05d" % number + os.urandom(10_000) for number in range(2500)], batch=500)
    wait_until(lambda: base() > before, 20, "a base")


# ---- who may use a store


def test_the_store_of_another_nsqd_is_refused(machine, store):
    nsqd = machine("a").start()
    nsqd.create("t", "c")
    errors = machine("b").fails_to_start()
    assert f"the store {store} has the messages of 127.0.0.1:" in errors
    assert f"--restore-from={store}" in errors
    assert nsqd.is_healthy()


def forget_store(data_path: Path, found: str) -> None:
    claims = data_path / CLAIMS_FILE
    claims.unlink()
    if found == "damaged":
        claims.write_bytes(b"garbage")


def knows_epoch(data_path: Path, topic: str) -> bool:
    """True if a data path proves whose a topic is: the epoch is written soon after the first message, not before it."""
    path = data_path / "nsqd.epochs"
    return path.exists() and f'"{topic}"' in path.read_text()


@pytest.mark.parametrize("found", ["missing", "damaged"])
def test_a_data_path_that_has_forgotten_its_store_goes_on(machine, store, found):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    wait_until(lambda: knows_epoch(nsqd.data_path, "t"))
    nsqd.kill()
    forget_store(nsqd.data_path, found)
    nsqd.start()
    assert f"WARNING: STORE: nsqd.store is {found} in " in nsqd.log_text()
    nsqd.pub("t", b"2")
    lose(nsqd)
    again = machine("b", f"--restore-from={store}").start()
    assert sorted(consume_all(again, "t", "c")) == [b"1", b"2"]


def test_a_data_path_that_has_forgotten_a_store_which_was_restored_is_told_so(machine, store, tmp_path):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    nsqd.kill()
    again = machine("b", ACKS, f"--restore-from={store}").start()
    again.pub("t", b"2")
    writer = json.loads((tmp_path / "store/head.json").read_bytes())["writer"]
    forget_store(nsqd.data_path, "damaged")
    error = nsqd.fails_to_start()
    assert f"nsqd.store is damaged in {nsqd.data_path}, and another nsqd" in error
    assert f"--restore-from={store}" in error
    assert json.loads((tmp_path / "store/head.json").read_bytes())["writer"] == writer, "it was claimed"
    assert sorted(consume_all(again, "t", "c")) == [b"1", b"2"]


def test_an_nsqd_whose_store_was_taken_over_does_not_start_again(machine, store):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    nsqd.kill()
    again = machine("b", f"--restore-from={store}").start()
    assert "has the messages of" in nsqd.fails_to_start()
    assert consume_all(again, "t", "c") == [b"1"]


def test_a_running_nsqd_ends_when_another_one_takes_over(machine, store):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    with nsqd.connect() as client:
        again = machine("b", ACKS, f"--restore-from={store}").start()
        with suppress(OSError):  # it has ended already
            client.send(pub("t", b"2"))
        assert nsqd.wait(DEADLINE_S) == 1
        assert not [frame for frame in client.rest() if frame.data == b"OK"]
    assert re.search(r"belongs to 127\.0\.0\.1:\d+ since its epoch 2", nsqd.log_text())
    assert consume_all(again, "t", "c") == [b"1"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "there is nothing to restore"),
        ("t.00000000000000000000.log", "is not empty, and was in no store"),
    ],
)
def test_what_cannot_be_restored(machine, store, content, complaint):
    nsqd = machine("a", f"--restore-from={store}")
    nsqd.data_path.mkdir()
    if content is not None:
        (nsqd.data_path / content).touch()
    assert complaint in nsqd.fails_to_start()


def begin_first_base(store: str, data_path: Path) -> None:
    """Do what the nsqd of this data path does with a new store until it is killed in the middle of its first base."""
    owner = claim(open_objects(store), "127.0.0.1:4150", Claims(data_path), lambda _: None)
    owner.append(piece_frame(TopicsListed()), is_mark=False, is_base=True)


def test_a_store_that_was_never_complete_is_not_restored_and_not_claimed(machine, store, tmp_path):
    with NsqdProcess(tmp_path / "a") as alone:
        alone.start().create("t", "c")
        alone.pub("t", b"1", b"2")
    begin_first_base(store, tmp_path / "a")
    head = (tmp_path / "store/head.json").read_bytes()
    sentence = "has no complete state yet: its nsqd 127.0.0.1:4150 was still copying"
    restoring = machine("b", ACKS, f"--restore-from={store}")
    for _ in range(2):  # systemd starts it again
        assert f"the store {store} {sentence}. It was not claimed" in restoring.fails_to_start()
    done = run_tool("nsq_apps.nsqd", f"--restore-from={store}", f"--data-path={tmp_path / 'copy'}")
    assert (done.returncode, sentence in done.stderr) == (1, True), done
    assert not (tmp_path / "copy").exists()
    assert (tmp_path / "store/head.json").read_bytes() == head

    nsqd = machine("a", ACKS).start()
    wait_until_stored(nsqd)
    lose(nsqd)
    assert sorted(consume_all(restoring.start(), "t", "c")) == [b"1", b"2"]


def test_an_empty_nsqd_that_was_killed_before_its_first_base_goes_on(machine, store, tmp_path):
    nsqd = machine("a", ACKS, f"--restore-from={store}")
    nsqd.data_path.mkdir()
    begin_first_base(store, nsqd.data_path)
    nsqd.start().create("t", "c")
    nsqd.pub("t", b"1")
    lose(nsqd)
    assert consume_all(machine("b", f"--restore-from={store}").start(), "t", "c") == [b"1"]


def test_a_restoration_that_was_interrupted_begins_again(machine, store):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    lose(nsqd)
    again = machine("b", f"--restore-from={store}")
    again.data_path.mkdir()
    (again.data_path / BACKUP_FILE).touch()
    (again.data_path / "t:c.cursor").write_bytes(b"half of it")
    assert "was not restored completely" in StoreNsqd(again.data_path, f"--store={store}").fails_to_start()
    again.start()
    assert consume_all(again, "t", "c") == [b"1"]


def test_a_crash_before_the_new_epoch_does_not_hide_the_restoration(machine, store):
    """nsqd ends when everything is restored, while it loads that: the next start begins a new epoch."""
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    lose(nsqd)
    again = FaultyStoreNsqd(
        nsqd.data_path.with_name("b"), f"--store={store}", ACKS, f"--restore-from={store}"
    )
    try:
        again.set_rules({"call": "open", "path": "t:c.cursor", "error": "EIO"})
        again.data_path.mkdir()
        assert "restored 1 log files" in again.fails_to_start(0)  # of its wrapper
        again.set_rules()
        again.start()
        saved = read_epochs(again.data_path)
        assert saved is not None
        assert saved.node
        assert not (again.data_path / BACKUP_FILE).exists()
        assert consume_all(again, "t", "c") == [b"1"]
    finally:
        again.destroy()


def test_a_damaged_round_is_named_and_set_aside(machine, store, tmp_path):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    wait_until_stored(nsqd)
    nsqd.kill()
    newest = max((tmp_path / "store/rounds").glob("[0-9a-f]*"))
    flip(newest, 60)
    nsqd.start()
    assert f"rounds/{newest.name} is damaged: its checksum is wrong; set aside" in nsqd.log_text()
    assert list((tmp_path / "store/aside").rglob(f"{newest.name}-*"))
    assert consume_all(nsqd, "t", "c") == [b"1"]


def rounds_of(path: Path) -> list[Path]:
    """Return the rounds from the base on that the head names."""
    base = json.loads((path / "head.json").read_text())["base"]
    return [each for each in sorted((path / "rounds").glob("[0-9a-f]*")) if int(each.name, 16) >= base]


def unlink(path: Path) -> None:
    path.unlink()


def flip_middle(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def restored_copy(store: str, data_path: Path, *complaints: str) -> NsqdProcess:
    """Restore a store, which is damaged, without --store; return the nsqd of the copy."""
    done = run_tool("nsq_apps.nsqd", f"--restore-from={store}", f"--data-path={data_path}")
    assert done.returncode == 1
    for complaint in complaints:
        assert complaint in done.stderr
    return NsqdProcess(data_path)


@pytest.mark.parametrize("harm", [flip_middle, unlink])
def test_a_base_that_is_damaged_loses_nothing_that_the_one_before_has(machine, store, tmp_path, harm):
    """A restoration says what is missing, and nsqd serves only when the operator says so; the store stays as it is."""
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.publish("t", [b"%03d" % number for number in range(100)], batch=10)
    nsqd.kill()
    first_base = rounds_of(tmp_path / "store")[0]
    nsqd.start()
    wait_until(
        lambda: rounds_of(tmp_path / "store")[0] != first_base
    )  # else the message is in the base itself
    nsqd.pub("t", b"after")
    nsqd.kill()
    shutil.rmtree(nsqd.data_path)
    base = rounds_of(tmp_path / "store")[0]
    harm(base)
    copy = restored_copy(
        store, tmp_path / "copy", f"rounds/{base.name} is ", "messages are missing in it: t: "
    )
    with copy:
        assert len(consume_all(copy.start(), "t", "c")) == 101
    again = machine("b", f"--restore-from={store}")
    errors = again.fails_to_start()
    assert f"the store {store} is damaged (rounds/{base.name} is " in errors
    assert "messages are missing in it: t: " in errors
    assert "start nsqd without --restore-from" in errors
    assert "Traceback" not in errors
    assert "is damaged" in again.fails_to_start(), "also when systemd starts it again"
    serving = machine("b").start()
    assert "serves without what the store has lost: t: " in serving.log_text()
    assert statistics(serving)["damaged_objects"] == 1
    assert base.name in statistics(serving)["damage"]
    assert len(consume_all(serving, "t", "c")) == 101
    wait_until_stored(serving)
    lose(serving)
    last = machine("d", f"--restore-from={store}").start()
    assert statistics(last)["damaged_objects"] == 0


def test_a_damaged_store_stays_that_of_the_nsqd_whose_disk_is_left(machine, store, tmp_path):
    """A restoration finds the damage before it claims the store, so that the old machine may come back with everything."""
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    for number in range(30):
        nsqd.pub("t", b"%d" % number)
    nsqd.kill()
    head = (tmp_path / "store/head.json").read_bytes()
    flip_middle(rounds_of(tmp_path / "store")[-1])
    restoring = machine("b", ACKS, f"--restore-from={store}")
    for _ in range(2):
        errors = restoring.fails_to_start()
        assert "is damaged: its checksum is wrong" in errors
        assert "The store was not claimed: if the data path of 127.0.0.1:" in errors
        assert "start nsqd without --restore-from to serve that" in errors
        assert "Traceback" not in errors
    assert (tmp_path / "store/head.json").read_bytes() == head
    nsqd.start()
    assert "has the messages of" in machine("b", ACKS).fails_to_start()
    assert len(consume_all(nsqd, "t", "c")) == 30
    wait_until_stored(nsqd)
    lose(nsqd)
    assert machine("b", ACKS, f"--restore-from={store}").start().channel_stats("t", "c")["depth"] == 0


def test_a_lost_round_loses_only_its_messages(machine, store, tmp_path):
    nsqd = machine("a", ACKS).start()
    for topic in "tu":
        nsqd.create(topic, "c")
    for number in range(30):
        nsqd.pub("tu"[number % 2], b"%d" % number)
    wait_until_stored(nsqd)
    nsqd.kill()
    shutil.rmtree(nsqd.data_path)
    rounds_of(tmp_path / "store")[-20].unlink()
    again = machine("b", f"--restore-from={store}")
    errors = again.fails_to_start()
    assert re.search(r"is missing: it was deleted or lost\).*messages \d+ to \d+", errors), errors
    serving = machine("b").start()
    found = [int(body) for topic in "tu" for body in consume_all(serving, topic, "c")]
    assert 28 <= len(set(found)) < 30, sorted(found)


@pytest.mark.parametrize("harm", [flip_middle, unlink])
def test_a_damaged_log_file_in_the_store_is_named_and_the_rest_is_restored(machine, store, tmp_path, harm):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.publish("t", [b"%03d" % number + os.urandom(10_000) for number in range(200)], batch=20)
    nsqd.kill()
    nsqd.start()  # a base: the first part of the log goes up as an object
    wait_until_stored(nsqd)  # else the message may be in the object, too, which is lost
    nsqd.pub("t", b"200")
    nsqd.kill()
    shutil.rmtree(nsqd.data_path)
    (file,) = (tmp_path / "store/files").rglob("*.log")
    harm(file)
    again = machine("b", f"--restore-from={store}")
    errors = again.fails_to_start()
    assert re.search(
        r"is damaged \(files/t/.* messages are missing in it: t: messages \d+ to \d+\.", errors
    ), errors
    is_claimed = "The store was claimed. If the data path of 127.0.0.1:" in errors
    assert is_claimed == (harm is flip_middle), "that an object is missing is known before"
    assert "Traceback" not in errors
    restored = read_epochs(again.data_path)
    serving = machine("b").start()
    assert statistics(serving)["damaged_objects"] == 1
    served = read_epochs(again.data_path)
    assert restored is not None and served is not None
    assert served.logs["t"][-1].number > restored.logs["t"][-1].number, "it continues as another node"
    with serving.consumer("t", "c", 300) as client:
        found = [int(client.message().body[:3])]
        while found[-1] != 200:
            found.append(int(client.message().body[:3]))
    assert len(found) >= 180 or harm is unlink


def test_a_head_that_is_missing_is_not_made_again(machine, store, tmp_path):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    nsqd.kill()
    head = tmp_path / "store/head.json"
    content = head.read_bytes()
    head.unlink()
    for flags in ((), (), (f"--restore-from={store}",)):
        other = machine(f"b{len(flags)}", *flags)
        assert "which has rounds/" in other.fails_to_start()
    assert not head.exists()
    head.write_bytes(content)
    nsqd.start()


def test_an_earlier_version_of_the_head_stops_nothing(machine, store, tmp_path, set_constants):
    """Somebody puts it back while nsqd runs, while it is stopped, and before a restoration."""
    set_constants("nsqd", {"nsqd_py.store.uploading.stream._LOOK_S": 0.2})
    head = tmp_path / "store/head.json"
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    earlier = head.read_bytes()
    nsqd.kill()
    nsqd.start()
    nsqd.pub("t", b"2")
    base = json.loads(earlier)["base"]
    # Else nsqd's own move of the head hides the earlier version.
    wait_until(lambda: json.loads(head.read_bytes())["base"] > base, DEADLINE_S)
    head.write_bytes(earlier)
    wait_until(lambda: head.read_bytes() != earlier, DEADLINE_S)
    wait_until(lambda: statistics(nsqd)["repaired_objects"] == 1, DEADLINE_S)
    assert "an earlier version of it was put back; set aside, and written again" in nsqd.log_text()
    nsqd.pub("t", b"3")
    nsqd.kill()
    head.write_bytes(earlier)
    foreign = machine("x", ACKS)
    assert "has the messages of an unknown nsqd (epoch 2)" in foreign.fails_to_start()
    assert head.read_bytes() == earlier
    nsqd.start()
    nsqd.pub("t", b"4")
    lose(nsqd)
    head.write_bytes(earlier)
    again = machine("b", ACKS, f"--restore-from={store}").start()
    assert statistics(again)["epoch"] == 4
    assert consume_all(again, "t", "c") == [b"1", b"2", b"3", b"4"]


def test_an_nsqd_without_messages_notices_that_it_was_replaced(machine, store, set_constants):
    set_constants("nsqd", {"nsqd_py.store.uploading.stream._LOOK_S": 1.0})
    nsqd = machine("a").start()
    nsqd.create("t", "c")
    wait_until_stored(nsqd)
    machine("b", f"--restore-from={store}").start()
    assert nsqd.wait(DEADLINE_S) == 1
    assert "belongs to 127.0.0.1" in nsqd.log_text()


def test_a_topic_that_was_made_again_while_the_store_was_away(machine, bucket):
    url = bucket.url("s")
    with FaultProxy(bucket.endpoint) as proxy:
        nsqd = machine("a", f"--store-endpoint={proxy.endpoint}", url=url).start()
        nsqd.create("t", "c")
        nsqd.publish("t", [b"old%03d" % number + bytes(10_000) for number in range(200)], batch=20)
        wait_until_stored(nsqd)
        nsqd.restart(clean=False)
        wait_until_stored(nsqd)  # a base: the first part of the log is an object
        proxy.at_random(1, 1.0, (refused(503),))
        nsqd.post("/topic/delete?topic=t")
        nsqd.create("t", "c")
        nsqd.mpub("t", [b"new%d" % number for number in range(10)])
        nsqd.kill()
        proxy.stop_faults()
        nsqd.start()
        assert "topic t was deleted here" in nsqd.log_text()
        wait_until_stored(nsqd)
        nsqd.kill()
    shutil.rmtree(nsqd.data_path)
    again = machine("b", f"--restore-from={url}", url=url).start()
    assert sorted(consume_all(again, "t", "c")) == [b"new%d" % number for number in range(10)]


def test_a_foreign_object_far_away_stops_nothing(machine, store, tmp_path):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"1")
    nsqd.kill()
    (tmp_path / "store/rounds/ffffffffffffffff").write_bytes(b"hello")
    nsqd.start()
    assert "rounds/ffffffffffffffff is damaged: it has only 5 bytes; set aside" in nsqd.log_text()
    nsqd.pub("t", b"2")
    lose(nsqd)
    again = machine("b", f"--restore-from={store}").start()
    assert sorted(consume_all(again, "t", "c")) == [b"1", b"2"]


# ---- a disk that lost something


def test_what_a_power_cut_took_comes_back_from_the_store(machine):
    nsqd = machine("a", ACKS, "--max-bytes-per-file=20000").start()
    nsqd.create("t", "c")
    nsqd.publish("t", [b"%03d" % number + bytes(900) for number in range(100)], batch=10)
    nsqd.create("new", "c")
    nsqd.pub("new", b"of a new topic")
    wait_until_stored(nsqd)
    nsqd.kill()
    logs = sorted(nsqd.data_path.glob("t.*.log"))
    assert len(logs) > 3
    logs[-1].unlink()
    os.truncate(logs[-2], 5000)
    for path in (*nsqd.data_path.glob("new*"), nsqd.data_path / CLOCK_FILE):  # of another boot
        path.unlink()
    nsqd.start()
    assert len(consume_all(nsqd, "t", "c")) == 100
    assert consume_all(nsqd, "new", "c") == [b"of a new topic"]
    assert "came back from the store" in nsqd.log_text()


def cut_last(data_path: Path) -> None:
    last = max(data_path.glob("t.*.log"))
    os.truncate(last, last.stat().st_size // 2)


def zero_last(data_path: Path) -> None:
    last = max(data_path.glob("t.*.log"))
    content = last.read_bytes()
    last.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def flip_last(data_path: Path) -> None:
    last = max(data_path.glob("t.*.log"))
    flip(last, last.stat().st_size // 2)


def flip_second(data_path: Path) -> None:
    second = sorted(data_path.glob("t.*.log"))[1]
    flip(second, second.stat().st_size // 2)


def remove_topic(data_path: Path) -> None:
    for path in data_path.glob("t[.:]*"):
        path.unlink()


def remove_all_but_claims(data_path: Path) -> None:
    for path in data_path.iterdir():
        if path.name not in (CLAIMS_FILE, CLOCK_FILE):
            path.unlink()


def remove_topic_and_its_name(data_path: Path) -> None:
    """As if nsqd had begun without the topic before, and without --store."""
    remove_topic(data_path)
    write_metadata(data_path, [])


@pytest.mark.parametrize(
    "harm",
    [
        cut_last,
        zero_last,
        flip_last,
        flip_second,
        remove_topic,
        remove_all_but_claims,
        remove_topic_and_its_name,
    ],
)
def test_what_a_disk_lost_without_a_reboot_comes_back_from_the_store(machine, store, harm):
    """And it stays in the store: another machine gets all of it."""
    nsqd = machine("a", ACKS, "--max-bytes-per-file=20000").start()
    nsqd.create("t", "c")
    bodies = [b"%03d" % number + os.urandom(900) for number in range(100)]
    nsqd.publish("t", bodies, batch=10)
    nsqd.kill()
    harm(nsqd.data_path)
    nsqd.start()
    nsqd.pub("t", b"new")
    wait_until_stored(nsqd)
    assert "came back from the store" in nsqd.log_text() or "comes back from the store" in nsqd.log_text()
    lose(nsqd)
    again = machine("b", f"--restore-from={store}").start()
    assert sorted(consume_all(again, "t", "c")) == sorted([*bodies, b"new"])


def test_a_journal_that_was_removed_comes_back(machine, store):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c", "deleted")
    nsqd.pub("t", b"1", b"2")
    with nsqd.consumer("t", "c", 1) as client:
        client.fin(client.message())
    wait_until_stored(nsqd)
    nsqd.kill()
    for name in ("c", "deleted"):
        (nsqd.data_path / f"t:{name}.cursor").unlink()
    write_metadata(nsqd.data_path, [{"name": "t", "channels": [{"name": "c"}]}])
    nsqd.start()
    assert list(nsqd.topic_stats("t")["channels"][0]["channel_name"]) == ["c"]
    assert consume_all(nsqd, "t", "c") == [b"2"]


@pytest.mark.parametrize("is_rebooted", [False, True], ids=["same boot", "rebooted"])
def test_a_disk_that_returns_to_an_old_state_loses_nothing_that_the_store_has(
    machine, store, tmp_path, is_rebooted
):
    """A topic that was made again since, a new one, a new channel, a longer log; and the store keeps all of it."""
    nsqd = machine("a", ACKS, "--max-bytes-per-file=20000").start()
    for topic in ("again", "longer", "deleted"):
        nsqd.create(topic, "c")
        nsqd.publish(topic, [b"old%02d" % number + bytes(900) for number in range(50)], batch=10)
    wait_until_stored(nsqd)
    snapshot = shutil.copytree(nsqd.data_path, tmp_path / "snapshot")
    nsqd.post("/topic/delete?topic=again")
    nsqd.post("/topic/delete?topic=deleted")
    nsqd.create("again", "c")
    nsqd.create("new", "c")
    nsqd.create("longer", "c2")
    names = ("again", "new", "longer")
    published = {name: [b"%s%d" % (name.encode(), number) for number in range(10)] for name in names}
    for topic, bodies in published.items():
        nsqd.publish(topic, bodies, batch=1)
    wait_until_stored(nsqd)
    nsqd.kill()
    shutil.rmtree(nsqd.data_path)
    shutil.copytree(snapshot, nsqd.data_path)
    if is_rebooted:
        (nsqd.data_path / CLOCK_FILE).unlink()
    nsqd.start()
    assert "topic again was made again after what is here" in nsqd.log_text()
    assert list(nsqd.data_path.glob("store-alone-*/again.*.log"))
    epochs = read_epochs(nsqd.data_path)
    assert set(epochs.ended) == {"again", "deleted"}
    wait_until_stored(nsqd)
    nsqd.kill()
    assert read_epochs(nsqd.data_path).ended == epochs.ended
    copy = StoreNsqd(shutil.copytree(nsqd.data_path, tmp_path / "copy"))
    restored = machine("b", f"--restore-from={store}")
    with copy:
        for each in (copy, restored):
            each.start()
            assert sorted(topic["topic_name"] for topic in each.stats()["topics"]) == sorted(published)
            assert sorted(consume_all(each, "again", "c")) == published["again"]
            assert sorted(consume_all(each, "new", "c")) == published["new"]
            assert sorted(consume_all(each, "longer", "c2")) == published["longer"]
            assert len(consume_all(each, "longer", "c")) == 60


def test_a_topic_that_was_made_again_just_before_a_kill_is_not_taken_for_the_deleted_one(machine, store):
    """Its epoch was not written yet; the store has the deletion of the one before, and not the new one."""
    nsqd = machine("a").start()
    nsqd.create("t", "c")
    nsqd.pub("t", b"old")
    wait_until_stored(nsqd)
    before = (nsqd.data_path / EPOCHS_FILE).read_bytes()
    nsqd.post("/topic/delete?topic=t")
    wait_until_stored(nsqd)
    nsqd.kill()
    alone = StoreNsqd(nsqd.data_path).start()
    alone.create("t", "c")
    alone.pub("t", b"new")
    alone.kill()
    (nsqd.data_path / EPOCHS_FILE).write_bytes(before)
    nsqd.start()
    wait_until_stored(nsqd)
    nsqd.restart(clean=False)
    assert not list(nsqd.data_path.glob("store-alone-*"))
    wait_until_stored(nsqd)
    lose(nsqd)
    again = machine("b", f"--restore-from={store}").start()
    assert consume_all(again, "t", "c") == [b"new"]


def write_metadata(data_path: Path, topics: list[dict[str, Any]]) -> None:
    (data_path / METADATA_FILE).write_text(json.dumps({"topics": topics}))


def test_what_was_published_without_the_store_is_not_mixed_with_what_the_store_has(machine, store, tmp_path):
    nsqd = machine("a", ACKS).start()
    nsqd.create("t", "c")
    nsqd.publish("t", [b"a%02d" % number + bytes(900) for number in range(40)], batch=1)
    nsqd.kill()
    cut_last(nsqd.data_path)
    alone = StoreNsqd(nsqd.data_path).start()
    alone.publish("t", [b"b%02d" % number + bytes(900) for number in range(10)], batch=1)
    assert alone.stop() == 0
    nsqd.start()
    assert "has other messages here than in the store" in nsqd.log_text()
    assert list(nsqd.data_path.glob("store-alone-*/t.*.log"))
    nsqd.pub("t", b"c")
    nsqd.kill()
    expected = sorted(
        consume_all(StoreNsqd(shutil.copytree(nsqd.data_path, tmp_path / "copy")).start(), "t", "c")
    )
    assert b"c" in expected and len(expected) < 51
    shutil.rmtree(nsqd.data_path)
    again = machine("b", f"--restore-from={store}").start()
    assert sorted(consume_all(again, "t", "c")) == expected


def test_damaged_bytes_are_repaired_from_the_store(machine):
    """In a file that is an object of the store, and in one that is only in rounds."""
    nsqd = machine("a", ACKS, "--max-bytes-per-file=1500000", "--mem-queue-size=1").start()
    nsqd.create("t", "c")
    nsqd.create("small", "c")
    bodies = [b"%03d" % number + bytes(10_000) for number in range(300)]
    nsqd.publish("t", bodies, batch=10)
    nsqd.publish("small", bodies[:20], batch=1)
    wait_until_stored(nsqd)
    nsqd.restart(clean=False)  # nothing is in memory
    wait_until_stored(nsqd)
    for log in sorted(nsqd.data_path.glob("*.log")):
        flip(log, 15_000, 95_000)
    assert sorted(consume_all(nsqd, "t", "c")) == bodies
    assert sorted(consume_all(nsqd, "small", "c")) == bodies[:20]


# ---- a store that is away


def test_a_store_that_is_away_stops_nothing_but_what_waits_for_it(
    machine, bucket, monkeypatch, set_constants
):
    set_constants("nsqd", {"nsqd_py.store.part._NOTICE_AFTER_S": 1.0})
    monkeypatch.setattr("tests.support.bucket_faults._HANGS_S", 1.0)
    with FaultProxy(bucket.endpoint) as proxy:
        endpoint = f"--store-endpoint={proxy.endpoint}"
        nsqd = machine("a", endpoint, url=bucket.url("s")).start()
        nsqd.create("t", "c")
        nsqd.pub("t", b"before")
        wait_until_stored(nsqd)
        proxy.at_random(1, 1.0, (refused(503),))
        nsqd.publish("t", [b"%d" % number for number in range(100)])
        wait_until(lambda: statistics(nsqd)["state"] == "away", DEADLINE_S)
        wait_until(lambda: b"takes nothing" in nsqd.http("GET", "/ping").body, DEADLINE_S, "a notice")
        assert nsqd.http("GET", "/ping").status == 200
        assert statistics(nsqd)["lag_messages"] == 100
        assert statistics(nsqd)["error"]
        proxy.stop_faults()
        wait_until_stored(nsqd)
    text = nsqd.log_text()
    assert text.count("takes nothing") == 1
    assert text.count("answers again, after") == 1
    lose(nsqd)
    again = machine("b", f"--restore-from={bucket.url('s')}", url=bucket.url("s")).start()
    assert len(consume_all(again, "t", "c")) == 101


def test_publishers_that_wait_for_a_store_that_is_away_get_an_error(machine, bucket):
    with FaultProxy(bucket.endpoint) as proxy:
        flags = (ACKS, "--store-timeout=300ms", f"--store-endpoint={proxy.endpoint}")
        nsqd = machine("a", *flags, url=bucket.url("s")).start()
        nsqd.create("t", "c")
        nsqd.pub("t", b"before")
        proxy.at_random(1, 1.0, (refused(503),))
        with nsqd.connect() as client:
            answer = client.ask(pub("t", b"x")).data
            assert answer.startswith(b"E_PUB_FAILED PUB failed"), answer
            assert b"--store-timeout" in answer
        proxy.stop_faults()
        nsqd.pub("t", b"after")


@pytest.mark.parametrize("status", [404, 412])
def test_an_answer_that_means_nothing_for_a_round_is_no_answer(machine, bucket, status):
    """A proxy in front of MinIO answers 404 while its backend is not registered."""
    url = bucket.url("s")
    with FaultProxy(bucket.endpoint) as proxy:
        nsqd = machine("a", ACKS, f"--store-endpoint={proxy.endpoint}", url=url).start()
        nsqd.create("t", "c")
        nsqd.pub("t", b"before")
        for number in range(5):
            proxy.add(refused(status), "PUT", "rounds/")
            nsqd.pub("t", b"%d" % number)
        assert "Traceback" not in nsqd.log_text()
        nsqd.kill()
    shutil.rmtree(nsqd.data_path)
    again = machine("b", f"--restore-from={url}", url=url).start()
    again.create("t", "c")
    assert len(consume_all(again, "t", "c")) == 6


def test_a_store_that_does_not_answer_at_the_start_is_waited_for(machine, bucket):
    with FaultProxy(bucket.endpoint) as proxy:
        proxy.at_random(1, 1.0, (refused(503),))
        nsqd = machine("a", f"--store-endpoint={proxy.endpoint}", url=bucket.url("s"))
        nsqd.launch()
        wait_until(lambda: "does not answer" in nsqd.log_text(), DEADLINE_S)
        proxy.stop_faults()
        nsqd.wait_until_it_listens()


def test_a_bucket_that_does_not_exist_is_refused(machine, bucket):
    errors = machine("a", url="s3://no-such-bucket-anywhere/x").fails_to_start()
    assert "cannot be claimed" in errors
    assert errors.count("Traceback") == 0


def test_a_stop_under_load_puts_all_that_was_acknowledged(machine, store):
    """Also what was published after the signal, until the connections were closed."""
    nsqd = machine("a").start()
    nsqd.create("t", "c")
    wait_until_stored(nsqd)
    publishers = [Publisher(nsqd, f"p{number}", 10) for number in range(2)]
    for publisher in publishers:
        publisher.start()
    wait_until(lambda: all(len(publisher.acknowledged) > 100 for publisher in publishers), DEADLINE_S)
    assert nsqd.stop() == 0
    for publisher in publishers:
        publisher.join(DEADLINE_S)
    shutil.rmtree(nsqd.data_path)
    again = machine("b", f"--restore-from={store}").start()
    acknowledged = {body for publisher in publishers for body in publisher.acknowledged}
    assert acknowledged <= set(consume_all(again, "t", "c"))
