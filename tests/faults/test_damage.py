"""Bits that flip and files that are cut, at every place: nsqd starts, has all that is not damaged, deletes nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from tests.support.broker_life import TOPIC, Life
from tests.support.ledger import compare
from tests.support.nsqd_process import NsqdProcess
from tests.support.wire import bodies
from tests.unit.fakes import SECOND

pytestmark = pytest.mark.ours

MESSAGES = [b"message %d" % number for number in range(6)]
FINISHED = MESSAGES[:2]
RECORD_BYTES = RECORD_HEADER_BYTES + 4 + len(MESSAGES[0])
LOG, JOURNAL, METADATA = f"{TOPIC}.{0:020d}.log", f"{TOPIC}:fast.cursor", "nsqd.dat"


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """What a killed nsqd left: six records of a message; `fast` finished two, at different times, and waits for one."""
    directory = tmp_path_factory.mktemp("sound") / "data"
    directory.mkdir()
    life = Life(directory, lambda *_: None)
    life.create()
    for message in MESSAGES:
        life.publish(message)
    consumer = life.consumer("fast", rdy=3)
    life.settle()
    first, second, third = consumer.take()
    for received in (first, second):
        life.finish("fast", consumer, received)
        life.pass_time(SECOND)
    consumer.requeue(third, SECOND)
    life.pass_time(SECOND // 2)
    life.end()
    log = directory / LOG
    log.write_bytes(log.read_bytes().rstrip(b"\0"))
    return directory


def start(directory: Path) -> tuple[dict[str, list[bytes]], Life]:
    """What its channels deliver."""
    life = Life(directory, lambda *_: None)
    return {name: life.drain(name) for name in life.broker.get_topic(TOPIC).channels}, life


def flipped(content: bytes) -> Iterator[tuple[int, bytes]]:
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        yield place, bytes(changed)


def cut(content: bytes) -> Iterator[tuple[int, bytes]]:
    for place in range(len(content)):
        yield place, content[:place]


Damages = Callable[[bytes], Iterator[tuple[int, bytes]]]
both = pytest.mark.parametrize("damages", [flipped, cut])
# Each place in the slow lane, each seventh on other days.
steps = pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])


Start = tuple[int, dict[str, list[bytes]], Life]


def each(sound: Path, root: Path, name: str, damages: Damages, step: int) -> Iterator[Start]:
    """Start with each of the damages to one file."""
    for place, content in islice(damages((sound / name).read_bytes()), 0, None, step):
        directory = root / "data"
        shutil.copytree(sound, directory)
        (directory / name).write_bytes(content)
        delivered, life = start(directory)
        yield place, delivered, life
        life.end()
        shutil.rmtree(directory)


def test_what_is_sound(sound, tmp_path):
    shutil.copytree(sound, tmp_path / "data")
    delivered, life = start(tmp_path / "data")
    life.end()
    assert {name: sorted(came) for name, came in delivered.items()} == {
        "fast": MESSAGES[2:],
        "slow": MESSAGES,
    }


@both
@steps
def test_a_log(sound, tmp_path, damages, step, tally):
    statistics: Counter[str] = Counter()
    for place, delivered, life in each(sound, tmp_path, LOG, damages, step):
        number = (place - FILE_HEADER_BYTES) // RECORD_BYTES
        if damages is cut:
            expected = MESSAGES[: max(0, number)]
        else:
            expected = MESSAGES[:number] + MESSAGES[number + 1 :]
            if number < 0:  # only the first half of the file header is in use, and unknown flags are ignored
                expected = [] if place < FILE_HEADER_BYTES // 2 and place not in (6, 7) else MESSAGES
        verdict = compare(expected, delivered["slow"])
        assert not verdict.findings, (place, *verdict.lines())
        assert sorted(delivered["fast"]) == [message for message in expected if message not in FINISHED], (
            place
        )
        if damages is flipped and number >= 0:
            aside = b"".join(path.read_bytes() for path in life.directory.glob("*.damaged"))
            assert len(aside) == RECORD_BYTES, "what could not be read is kept"
        if not expected:
            assert (life.directory / f"{LOG}.damaged").exists() or damages is cut, "the whole file is kept"
        is_between_records = number >= 0 and place == FILE_HEADER_BYTES + number * RECORD_BYTES
        assert life.world.log.errors or damages is flipped or is_between_records, place
        statistics += Counter(faults=1, **verdict.counts())
    tally(**statistics)


@both
@steps
def test_a_journal(sound, tmp_path, damages, step, tally):
    statistics: Counter[str] = Counter()
    for place, delivered, _ in each(sound, tmp_path, JOURNAL, damages, step):
        compare(MESSAGES, delivered["slow"]).require_sound()
        finished_again = [body for body in delivered["fast"] if body in FINISHED]
        verdict = compare(MESSAGES[2:] + sorted(set(finished_again)), delivered["fast"])
        assert not verdict.findings, (place, *verdict.lines())
        statistics += Counter(faults=1, acknowledged=len(MESSAGES), doubled=len(finished_again))
    tally(**statistics)


@both
@steps
def test_metadata(sound, tmp_path, damages, step, tally):
    """The files of topics and channels tell that they are there; a name that became another is one too many."""
    statistics: Counter[str] = Counter()
    for place, delivered, life in each(sound, tmp_path, METADATA, damages, step):
        for expected, name in (MESSAGES, "slow"), (MESSAGES[2:], "fast"):
            verdict = compare(expected, delivered[name])
            assert not verdict.findings, (place, *verdict.lines())
        damaged = life.directory / f"{METADATA}.damaged"
        assert damaged.exists() == any(METADATA in error for error in life.world.log.errors), place
        assert damaged.exists() or damages is flipped, place
        statistics += Counter(faults=1, acknowledged=len(MESSAGES))
    tally(**statistics)


def test_nsqd_starts_without_its_metadata(tmp_path):
    with NsqdProcess(tmp_path / "nsqd").start() as nsqd:
        nsqd.create("t", "c", "d")
        nsqd.pub("t", b"x")
        nsqd.kill()
        path = nsqd.data_path / METADATA
        path.write_bytes(b"\0" * 100)
        nsqd.start()
        assert f"set aside as {METADATA}.damaged" in nsqd.log_text()
        assert (nsqd.data_path / f"{METADATA}.damaged").read_bytes() == b"\0" * 100
        for channel in ("c", "d"):
            assert bodies(nsqd.consume("t", channel, 1)) == [b"x"]
