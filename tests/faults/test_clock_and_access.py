"""A clock that steps back, and a data directory that may not be written to."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nsqd_py.settings.kinds import ByTopic
from tests.support.broker_life import Life
from tests.support.ledger import compare
from tests.support.nsqd_process import REPOSITORY
from tests.unit.fakes import SECOND, FakeConsumer, Received

HOUR = 3600 * SECOND


def take(life: Life, consumer: FakeConsumer) -> list[Received]:
    life.settle()
    received = consumer.take()
    consumer.finish(*received)
    return received


@pytest.mark.ours
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "running"])
def test_the_clock_steps_back_an_hour(tmp_path, is_killed, tally):
    """No message is lost, ids and order stay, deferred messages come no earlier than their delay."""
    life = Life(tmp_path, lambda *_: None)
    life.create()
    wall_ns = life.world.clock()
    life.broker.services.wall_clock = lambda: wall_ns
    before = [b"before %d" % number for number in range(5)]
    for body in before:
        life.publish(body)
    life.publish(b"deferred", defer_ns=10 * SECOND)
    wall_ns -= HOUR
    if is_killed:
        life.pass_time(SECOND)
        life.end()
        life = Life(tmp_path, lambda *_: None)
        life.broker.services.wall_clock = lambda: wall_ns
        life.world.clock.now_ns -= HOUR
    after = [b"after %d" % number for number in range(5)]
    for body in after:
        life.publish(body)
    consumer = life.consumer("slow", rdy=1000)
    received = take(life, consumer)
    assert [message.body for message in received] == before + after
    ids = [message.id for message in received]
    assert ids == sorted(set(ids)), "ids go on, though the clock does not"
    life.pass_time(9 * SECOND)
    assert not take(life, consumer), "the deferred one is not due"
    life.pass_time(HOUR + 2 * SECOND)
    deferred = take(life, consumer)
    assert [message.body for message in deferred] == [b"deferred"]
    life.end()
    came = [message.body for message in received + deferred]
    verdict = compare([*before, b"deferred", *after], came).require_sound()
    tally(faults=1, kills=int(is_killed), **verdict.counts())


@pytest.mark.ours
def test_retention_keeps_as_long_when_the_clock_was_set_back(tmp_path):
    life = Life(tmp_path, lambda *_: None, retention_time_ns=ByTopic(600 * SECOND), max_bytes_per_file=1000)
    life.create()
    wrong_by_ns = -HOUR
    life.broker.services.wall_clock = lambda: life.world.clock() + wrong_by_ns
    for _ in range(5):
        life.publish(b"x" * 800)
    wrong_by_ns = 0
    consumers = [life.consumer(channel, rdy=1000) for channel in ("fast", "slow")]
    for consumer in consumers:
        assert len(take(life, consumer)) == 5
    life.pass_time(500 * SECOND)
    assert len(list(tmp_path.glob("*.log"))) == 5
    life.pass_time(101 * SECOND)
    life.publish(b"last")
    for consumer in consumers:
        assert len(take(life, consumer)) == 1
    life.pass_time(SECOND)
    assert len(list(tmp_path.glob("*.log"))) == 1
    life.end()


# --- access


# All is imported before it becomes another user, to whom the interpreter may be out of reach.
AS_NOBODY = """
import encodings.idna, locale, os, pprint, sys
import nsq_apps.nsqd, gevent.threadpool, nsqd_py.server.daemon, nsqd_py.server.options, nsqd_py.settings.program
import nsqd_py.standby.messages
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(nsq_apps.nsqd.main())
"""


def run_as_nobody(data_path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", AS_NOBODY, f"--data-path={data_path}"]
    command += ["--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"]
    return subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that everybody may reach, which pytest's own are not."""
    path = Path(tempfile.mkdtemp(prefix="nsqd-access-"))
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


@pytest.mark.parametrize(
    ("mode", "complaint"), [(0o000, "); --data-path must be"), (0o555, "Permission denied")]
)
def test_a_directory_without_permission(open_path, mode, complaint, tally):
    data_path = open_path / "data"
    data_path.mkdir()
    data_path.chmod(mode)
    nsqd = run_as_nobody(data_path)
    _, text = nsqd.communicate(timeout=40)
    data_path.chmod(0o755)
    assert nsqd.returncode == 1
    assert complaint in text
    assert "Traceback" not in text
    assert list(data_path.iterdir()) == []
    tally(faults=1)
