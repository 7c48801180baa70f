"""Backups of a running nsqd, and the data paths that they are restored into."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standby.conftest import Start
from tests.support.certificates import make_certificates
from tests.support.harm import flip
from tests.support.ledger import History, compare, judge
from tests.support.network import Relay, free_ports
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, nsqd_command, wait_until
from tests.support.standby_processes import (
    DEADLINE_S,
    LoadedPublisher,
    consume_all,
    standby_of,
    wait_until_it_follows,
)
from tests.support.sweeps import sampled
from tests.support.tool_process import run_tool
from tests.support.wire import pub

pytestmark = pytest.mark.ours

OPEN = "--accept-standbys"


def started(*flags: str) -> subprocess.Popen[str]:
    command = [*nsqd_command(), *flags]
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(*flags: str) -> tuple[int, str, str]:
    """Run nsqd-py to its end; the exit status, and what it has printed on both streams."""
    done = run_tool("nsq_apps.nsqd", *flags)
    return done.returncode, done.stdout, done.stderr


def back_up(nsqd: NsqdProcess, target: Path, *flags: str) -> Path:
    status, output, errors = run(f"--backup-to={target}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}", *flags)
    assert (status, errors) == (0, ""), errors
    assert str(target) in output
    return target


def restore(backup: Path, data_path: Path) -> None:
    status, output, errors = run(f"--restore-from={backup}", f"--data-path={data_path}")
    assert (status, errors) == (0, ""), errors
    assert str(data_path) in output


@pytest.fixture
def restored(tmp_path, start) -> Start:
    """restored(backup, *flags) starts an nsqd on what the backup is restored into."""
    names = map("restored{}".format, itertools.count())

    def start_restored(backup: Path, *flags: str) -> NsqdProcess:
        name = next(names)
        restore(backup, tmp_path / name)
        return start(name, *flags)

    return start_restored


def test_a_backup_has_everything(make_nsqd, restored, tmp_path):
    """Channels at their positions, messages deferred, requeued and in flight, pauses; files that were rolled."""
    nsqd = make_nsqd(OPEN, "--max-bytes-per-file=20000")
    nsqd.create("orders", "fast", "slow")
    nsqd.create("paused", "c")
    nsqd.post("/topic/pause?topic=paused")
    with nsqd.connect() as client, nsqd.connect() as consumer:
        nsqd.publish("orders", [b"%04d" % number + b"x" * 500 for number in range(300)], batch=10)
        client.dpub("orders", 3_600_000, b"deferred")
        client.mpub("paused", [b"held"])
        client.mpub("lone", [b"without a channel"])
        consumer.sub("orders", "slow", 2000)
        received = consumer.messages(300)
        consumer.fin(*[message for message in received if message.body[:4] not in (b"0003", b"0200")])
        consumer.round_trip()
        assert len(consume_all(nsqd, "orders", "fast")) == 300
        nsqd.wait_for_channel("orders", "slow", in_flight_count=2)
        backup = back_up(nsqd, tmp_path / "backup")
        assert nsqd.stats()["standbys"]["list"] == []

    again = restored(backup)
    assert not list(tmp_path.glob("restored0/nsqd.epochs"))
    assert sorted(body[:4] for body in consume_all(again, "orders", "slow")) == [b"0003", b"0200"]
    assert again.channel_stats("orders", "slow")["deferred_count"] == 1
    assert again.channel_stats("orders", "fast")["depth"] == 0
    assert again.topic_stats("paused")["paused"]
    again.create("lone", "first")
    assert consume_all(again, "lone", "first") == [b"without a channel"]
    assert " is gone" not in again.log_text()


def test_under_load_it_has_all_that_was_acknowledged_before(make_nsqd, restored, tmp_path):
    """Messages that consumers cannot handle move to a dead-letter topic in the meantime: they are in one of the two."""
    nsqd = make_nsqd(OPEN, "--max-attempts=1", "--max-bytes-per-file=100000")
    nsqd.create("t", "c")
    history = History(tmp_path / "history.jsonl")
    history.created("t", "c")
    publishers = [
        LoadedPublisher(history, nsqd, "t", f"p{number}", batch=1 + 9 * (number % 2)) for number in range(4)
    ]
    for publisher in publishers:
        publisher.start()
    wait_until(lambda: all(publisher.acknowledged > 300 for publisher in publishers), DEADLINE_S)
    before = {publish.body for publish in judge(history).story.acknowledged()}
    with nsqd.consumer("t", "c", 200) as consumer:
        process = started(f"--backup-to={tmp_path / 'backup'}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}")
        while process.poll() is None:
            for number, message in enumerate(consumer.messages(20)):
                if number % 2:
                    history.delivered("t", "c", message.body, message_id=message.id)
                    consumer.fin(message)
                else:
                    consumer.send(b"REQ %b 0\n" % message.id)
    assert process.communicate()[1] == ""
    nsqd.kill()
    again = restored(tmp_path / "backup")
    again.create("t.dead", "c")
    for topic in ("t", "t.dead"):
        for body in consume_all(again, topic, "c"):
            history.delivered("t", "c", body)
    verdict = judge(history)
    assert not [finding for finding in verdict.findings if finding.check != "lost" or finding.body in before]
    assert " is gone" not in again.log_text()


class HoldingRelay(Relay):
    """Stops for good after some pieces of at most 64 KiB."""

    passed = 0

    def _pass_on(self, source: object) -> None:
        super()._pass_on(source)
        self.passed += 1
        if self.passed == 100:
            self._flowing.clear()


@pytest.mark.parametrize("victim", ["source", "backup"])
def test_a_kill_leaves_nothing_that_looks_complete(victim, tmp_path, make_nsqd, restored):
    (port,) = free_ports(1)
    nsqd = make_nsqd(OPEN, f"--broadcast-tcp-port={port}")
    nsqd.create("t", "c")
    bodies = [b"%d" % number + bytes(1_000_000) for number in range(30)]
    nsqd.connect().pub("t", *bodies)
    publisher = LoadedPublisher(History(), nsqd, "t", "p")
    publisher.start()
    relay = HoldingRelay(("127.0.0.1", port), ("127.0.0.1", nsqd.tcp_port))
    target = tmp_path / "backup"
    try:
        process = started(f"--backup-to={target}", f"--standby-of=127.0.0.1:{port}")
        wait_until(lambda: relay.passed >= 100, DEADLINE_S, "the middle of the backup")
        in_use = f"nsqd-py: {target} is in use by another nsqd-py\n"
        assert run(f"--backup-to={target}", f"--standby-of=127.0.0.1:{port}") == (1, "", in_use)
        (nsqd if victim == "source" else process).kill()
        relay.go_on()
        errors = process.communicate(timeout=DEADLINE_S)[1]
    finally:
        relay.close()
    assert not target.exists()
    if victim == "source":
        assert process.returncode == 1
        assert errors.startswith(f"nsqd-py: the backup of 127.0.0.1:{port} is not complete: ")
        assert errors.count("\n") == 1
        assert not list(tmp_path.glob("backup*"))
        nsqd.start()
    again = restored(back_up(nsqd, target))
    assert not list(tmp_path.glob("backup.*"))
    assert compare(bodies, consume_all(again, "t", "c"), at_least_once=True).of("lost") == []


def test_a_backup_is_no_standby(make_nsqd, tmp_path):
    nsqd = make_nsqd("--standby-acks=1", "--standby-timeout=300ms")
    nsqd.create("t", "c")
    for number in range(3):
        back_up(nsqd, tmp_path / str(number))
        with nsqd.connect() as client:
            assert client.ask(pub("t", b"x")).data.startswith(
                b"E_PUB_FAILED PUB failed 0 standbys are connected"
            )


def test_what_is_restored_is_no_danger_to_its_origin(make_nsqd, restored, tmp_path):
    """Neither as another primary, nor as a standby, also if the origin was promoted itself."""
    old = make_nsqd(OPEN)
    old.create("t", "c")
    old.post("/pub?topic=t", b"before")
    standby_of(old, tmp_path / "origin").destroy()
    old.destroy()
    with NsqdProcess(tmp_path / "origin", "--promote", OPEN).start() as origin:
        backup = back_up(origin, tmp_path / "backup")
        origin.post("/pub?topic=t", b"after")
        again = restored(backup, OPEN)
        again.post("/pub?topic=t", b"alone")
        again.stop()
        follower = restored(backup, OPEN, f"--standby-of=127.0.0.1:{origin.tcp_port}")
        wait_until_it_follows(follower)
        assert consume_all(origin, "t", "c") == [b"before", b"after"]
        assert "FENCED" not in origin.log_text()


@pytest.fixture(scope="module")
def backup(tmp_path_factory) -> Iterator[Path]:
    """A directory with a backup."""
    path = tmp_path_factory.mktemp("backups")
    with NsqdProcess(path / "nsqd", OPEN).start() as nsqd:
        nsqd.create("t", "c")
        nsqd.post("/pub?topic=t", b"hello" * 1000)
        nsqd.pub("large", *[bytes(100_000)] * 20)
        back_up(nsqd, path / "backup")
    return path


def base_in(path: Path) -> Path:
    return next(path.glob("backup/rounds/*"))


def file_in(path: Path) -> Path:
    return next(path.glob("backup/files/large/*.log"))


def link_instead(path: Path, target: Path) -> None:
    path.rename(target)
    path.symlink_to(target)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a flipped bit in a log": lambda path: flip(file_in(path), 200),
    "a flipped bit in the base": lambda path: flip(base_in(path), 200),
    "a flipped bit in the head": lambda path: flip(path / "backup/head.json", 5),
    "a log that was cut": lambda path: os.truncate(file_in(path), 100),
    "a log less": lambda path: file_in(path).unlink(),
    "no base": lambda path: base_in(path).unlink(),
    "no head": lambda path: (path / "backup/head.json").unlink(),
    "a link for a file": lambda path: link_instead(file_in(path), path / "x"),
    "a file in place of a directory": lambda path: (
        shutil.rmtree(path / "backup"),
        (path / "backup").write_bytes(b"x"),
    ),
}


@pytest.mark.parametrize("name", sampled(DAMAGE, "a flipped bit in a log", "no head", "a link for a file"))
def test_a_damaged_backup_is_not_restored(name, backup, tmp_path):
    mine = Path(shutil.copytree(backup, tmp_path / "mine"))
    DAMAGE[name](mine)
    (tmp_path / "empty").mkdir()
    for data_path in (tmp_path / "new", tmp_path / "empty"):
        status, output, errors = run(f"--restore-from={mine / 'backup'}", f"--data-path={data_path}")
        assert (status, output) == (1, "")
        assert errors.startswith(f"nsqd-py: {mine / 'backup'} cannot be restored: ")
        assert errors.count("\n") == 1
        assert not data_path.exists() or not list(data_path.iterdir())


@pytest.mark.parametrize("place", sampled(["records", "header", "journal"], "records", "journal"))
def test_damage_in_the_source_is_named(place, make_nsqd, tmp_path):
    """What can be read is there, and neither the backup nor its restoration says that all is well."""
    nsqd = make_nsqd(OPEN)
    nsqd.create("t", "c")
    nsqd.pub("t", *[b"%03d" % number + bytes(100) for number in range(100)])
    nsqd.wait_for_channel("t", "c", depth=100)
    (log,) = nsqd.data_path.glob("t.*.log")
    record_bytes = (log.read_bytes().rindex(b"099") - log.read_bytes().index(b"000")) // 99
    if place == "records":
        places = [64 + record_bytes * number for number in range(10, 81, 14)]
        named = [f"{log.name}: {record_bytes} bytes at {place}" for place in places]
        flip(log, *(place + 80 for place in places))
    elif place == "header":
        named = [f"{log.name}: {64 + 100 * record_bytes} bytes at 0"]
        flip(log, 9)
    else:
        named = ["t:c.cursor: "]
        flip(nsqd.data_path / "t:c.cursor", 9)

    target, data_path = tmp_path / "backup", tmp_path / "restored"
    status, output, errors = run(f"--backup-to={target}", f"--standby-of=127.0.0.1:{nsqd.tcp_port}")
    assert (status, errors.count("\n")) == (1, 1)
    assert str(target) in output
    assert all(each in errors for each in named), errors
    status, output, errors = run(f"--restore-from={target}", f"--data-path={data_path}")
    assert (status, errors.count("\n")) == (1, 1)
    assert str(data_path) in output
    assert all(each in errors for each in named), errors
    assert run(f"--check-data={data_path}")[0] == 1


def test_nothing_is_written_over(backup, tmp_path):
    data_path = tmp_path / "data"
    data_path.mkdir()
    (data_path / "lost+found").mkdir()
    restore(backup / "backup", data_path)
    before = sorted(data_path.iterdir())
    status, _, errors = run(f"--restore-from={backup / 'backup'}", f"--data-path={data_path}")
    assert (status, errors) == (1, f"nsqd-py: {data_path} is not empty: restore into a new directory\n")
    assert sorted(data_path.iterdir()) == before
    status, _, errors = run(f"--backup-to={data_path}", "--standby-of=127.0.0.1:1")
    assert (status, errors) == (1, f"nsqd-py: {data_path} exists already: choose another --backup-to\n")


def test_nsqd_does_not_serve_a_backup(backup, tmp_path):
    mine = Path(shutil.copytree(backup / "backup", tmp_path / "backup"))
    for flags in ([], ["--promote"], ["--standby-of=127.0.0.1:1"]):
        errors = NsqdProcess(mine, *flags).fails_to_start()
        assert "is a backup" in errors
        assert "--restore-from" in errors
    restore(mine, tmp_path / "data")


def test_with_tls_and_names_in_certificates(make_nsqd, tmp_path):
    """The flags are those of a standby."""
    certificates = make_certificates(tmp_path / "certificates")
    flags = (
        *certificates.nsqd_flags,
        "--tls-client-auth-policy=require-verify",
        f"--tls-root-ca-file={certificates.authority}",
        "--standby-tls",
        f"--client-tls-root-ca-file={certificates.authority}",
        f"--client-tls-cert={certificates.client_certificate}",
        f"--client-tls-key={certificates.client_key}",
        "--standby-tls-allowed-names=client@example.org",
        "--standby-tls-allowed-names=localhost",
    )
    back_up(make_nsqd(OPEN, *flags), tmp_path / "backup", *flags)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--backup-to=x"], "--backup-to needs --standby-of"),
        (["--restore-from=x"], "--restore-from needs --data-path"),
        (["--backup-to=x", "--restore-from=y"], "exclude each other"),
        (["--backup-to=x.tar.zst", "--standby-of=127.0.0.1:1"], "a backup is a directory"),
        (["--restore-from=x.tar.zst", "--data-path=y"], "a backup is a directory"),
        (["--backup-to=x", "--standby-of=192.0.2.1:1"], "--standby-secret-file"),
        (["--backup-to=x", "--standby-of=somewhere"], "--standby-of"),
    ],
)
def test_flags_that_do_not_fit(flags, complaint):
    status, _, errors = run(*flags)
    assert status == 2
    assert complaint in errors


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_backup_is_not_taken_over_as_a_store(make_nsqd, tmp_path, is_restored):
    nsqd = make_nsqd("--accept-standbys")
    nsqd.create("orders", "archive")
    nsqd.post("/pub?topic=orders", b"one")
    backup = back_up(nsqd, tmp_path / "backup")
    before = {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()}
    url = f"file://{backup}"
    flags = [f"--data-path={tmp_path / 'data'}", f"--store={url}", "--tcp-address=127.0.0.1:0"]
    if is_restored:
        flags.append(f"--restore-from={url}")
    (tmp_path / "data").mkdir()
    status, _, errors = run(*flags)
    assert status == 1
    assert f"is a backup of 127.0.0.1:{nsqd.tcp_port}, which stays as it is" in errors
    assert f"--restore-from={url}, without --store; then start nsqd there with another --store" in errors
    assert {path: path.read_bytes() for path in backup.rglob("*") if path.is_file()} == before
