"""What nsqd puts into a store: wherever the rounds end, it can be restored with everything that they cover."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from unittest.mock import patch

import gevent
import pytest
from gevent.event import Event as Signal
from hypothesis import given, settings
from hypothesis import strategies as st

from nsqd_py.broker.upkeep.mending import LogFiles, Repairs
from nsqd_py.diskqueue.records import FILE_HEADER_BYTES
from nsqd_py.feed import feed
from nsqd_py.objects.calls import Objects, StoreError
from nsqd_py.objects.opening import open_objects
from nsqd_py.runtime.logs.daemon_log import FATAL, Log
from nsqd_py.settings.durations import HOUR_NS
from nsqd_py.settings.kinds import ByTopic
from nsqd_py.store import files, rounds
from nsqd_py.store.files import StoredFiles
from nsqd_py.store.image import StoreImage
from nsqd_py.store.layout import HEAD_NAME, round_name
from nsqd_py.store.ownership import Claims, Owner, claim
from nsqd_py.store.repairing import StoreCopy
from nsqd_py.store.restoring.restoration import Restoration
from nsqd_py.store.uploading import calls, log_files, stream, timing, writing
from nsqd_py.store.uploading.stream import StoreStream
from tests.property.test_standby_model import owed_to, remaining, run_in_new_directory
from tests.support.broker_life import CHANNELS, TOPIC, Life, work
from tests.support.examples import examples
from tests.unit.fakes import SECOND, FakeThreadPool, close_descriptors

Event = tuple[Any, ...]


class Covered(NamedTuple):
    """A round: the events when it began, and when its object was stored."""

    number: int
    began: int
    stored: int


class Unreliable:
    """Objects whose calls sometimes fail, before or after they had their effect."""

    def __init__(self, objects: Objects, chance: random.Random) -> None:
        self._objects = objects
        self._chance = chance
        self.rate = 0.0
        self.is_next_broken = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._objects, name)

        def unreliable(*arguments: Any) -> Any:
            if name == "create" and self.is_next_broken:
                self.is_next_broken = False
                raise OSError("an error that ends the round")
            if self._chance.random() < self.rate / 2:
                raise StoreError("a fault of the test")
            found = call(*arguments)
            if self._chance.random() < self.rate / 2:
                raise StoreError("the answer is lost")
            return found

        return unreliable


class Uploaded(Life):
    """A life of a broker with a store, in which more may happen: compaction, pauses, and a topic that is made again."""

    def __init__(self, directory: Path, objects: Objects, chance: random.Random, **options: Any) -> None:
        self.events: list[Event] = []
        self.covered: list[Covered] = []
        self.superseded: list[str] = []
        self.objects = objects
        self._chance = chance
        self._is_busy = True
        super().__init__(directory, lambda *event: self.events.append(event), **options)
        self.owner: Owner = claim(objects, "here", Claims(directory), lambda _: None)
        assert self.owner.image is not None
        known = StoredFiles(file for listed in self.owner.image.files.values() for file in listed)
        self.stream = StoreStream(
            self.broker, directory, FakeThreadPool(), objects, self.owner, known, self, self._superseded
        )
        self.stream.start()
        self._is_busy = False

    def _superseded(self, error: Exception) -> None:
        self.superseded.append(str(error))

    # ---- the publishers that wait, as the stream sees them

    def last_write(self) -> int:
        return len(self.events)

    def count(self) -> int:
        return 0

    def stored(self, write: int) -> None:
        self.covered.append(Covered(self.owner.next_number - 1, write, len(self.events)))

    # ---- what happens

    def settle(self, rounds: int = 4) -> None:
        super().settle(rounds)
        if self._is_busy:
            return
        self._is_busy = True
        topic = self.broker.topics.get(TOPIC)
        choice = self._chance.random()
        if topic is not None and choice < 0.15:
            self.broker.housekeeper.run()
        elif topic is not None and choice < 0.2:
            self.broker.pause_topic(topic, not topic.is_paused)
        elif choice < 0.4:
            gevent.sleep(0.002)
        super().settle(rounds)
        self._is_busy = False

    def make_topic_again(self) -> None:
        self._is_busy = True
        for name in CHANNELS:
            self.mark("emptied", name)
        self.broker.delete_topic(TOPIC)
        self.create()
        self._is_busy = False

    def catch_up(self) -> None:
        """Return when the store has everything."""
        self._is_busy = True
        self.pass_time(SECOND)
        self.pass_time(2 * SECOND)
        self.stream.hurry()
        with gevent.Timeout(30):
            while not self.stream.has_all:
                gevent.sleep(0.001)

    def end(self) -> None:
        assert self.superseded == []
        self.stop_stream()

    def stop_stream(self) -> None:
        self.stream.stop()
        gevent.sleep(0)
        super().end()


def image_until(objects: Objects, last: int) -> StoreImage:
    """The state after this round."""
    image = StoreImage()
    for number in range(1, last + 1):
        image.apply(rounds.decode(number, objects.get(round_name(number))[0]))
    return image


def restored(objects: Objects, image: StoreImage, path: Path) -> Life:
    path.mkdir()
    Restoration(path, objects, lambda: None, Log(level=FATAL)).run(image, is_complete=True)
    return Life(path, lambda *_: None)


def check_cut(life: Uploaded, objects: Objects, cut: Covered, path: Path) -> None:
    """What was acknowledged before the round began, and is not finished, comes back."""
    found = remaining(restored(objects, image_until(objects, cut.number), path))
    later = [event for event in life.events[cut.began : cut.stored] if event[0] != "acknowledged"]
    for name in CHANNELS:
        assert owed_to(name, life.events[: cut.began] + later) <= set(found[name]), name


def check_objects(life: Uploaded, objects: Objects) -> None:
    """The state names no object that is missing."""
    image = image_until(objects, life.owner.next_number - 1)
    for listed in image.files.values():
        for file in listed:
            objects.get(file.name)


def run(seed: int, steps: int, base: Path) -> None:
    chance = random.Random(seed)
    (base / "primary").mkdir()
    memory = open_objects("memory://")
    unreliable = Unreliable(memory, chance)
    retention_ns = chance.choice((0, HOUR_NS))
    life = Uploaded(
        base / "primary",
        unreliable,  # type: ignore[arg-type]
        chance,
        max_bytes_per_file=3000,
        mem_queue_size=10,
        store_interval_ns=0,
        store_retention_time_ns=ByTopic(retention_ns),
    )
    life.create()
    unreliable.rate = chance.choice((0.0, 0.0, 0.1))
    for _ in range(3):
        work(life, chance, steps // 3)
        if chance.random() < 0.3:
            life.make_topic_again()
    life.catch_up()
    assert life.covered
    check_objects(life, memory)
    life.end()
    close_descriptors(base)

    cuts = {*chance.sample(life.covered, min(4, len(life.covered))), life.covered[-1]}
    for cut in cuts:
        check_cut(life, memory, cut, base / f"cut{cut.number}-{cut.began}")
    last = life.owner.next_number - 1
    complete = remaining(restored(memory, image_until(memory, last), base / "complete"))
    expected = remaining(Life(base / "primary", lambda *_: None))
    assert complete == expected


SMALL = {
    (files, "PREFIX_BYTES"): 700,
    (writing, "_OBJECT_BYTES"): 2000,
    (writing, "_MOST_ROUNDS"): 15,
    (writing, "_LEAST_BYTES"): 10_000,
    (writing, "_MOST_BYTES"): 20_000,
    (timing, "_TICK_S"): 0.001,
    (stream, "_COLLECTION_S"): 0.01,
    (feed, "_JOURNAL_S"): 0.0,
    (calls, "FIRST_PAUSE_S"): 0.001,
    (calls, "LONGEST_PAUSE_S"): 0.002,
    (stream, "FIRST_PAUSE_S"): 0.001,
    (stream, "LONGEST_PAUSE_S"): 0.002,
}


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Bases, objects and prefixes are so small that there are many."""
    patches = [patch.object(module, name, value) for (module, name), value in SMALL.items()]
    for each in patches:
        each.start()
    yield
    for each in patches:
        each.stop()


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(5, 40))
def test_what_rounds_cover_comes_back_wherever_they_end(seed: int, steps: int) -> None:
    run_in_new_directory(run, seed, steps)


def run_with_broken_rounds(seed: int, steps: int, base: Path) -> None:
    chance = random.Random(seed)
    (base / "primary").mkdir()
    memory = open_objects("memory://")
    unreliable = Unreliable(memory, chance)
    life = Uploaded(base / "primary", unreliable, chance, store_interval_ns=0)  # type: ignore[arg-type]
    life.create()
    for _ in range(3):
        work(life, chance, steps)
        life.catch_up()
        unreliable.is_next_broken = True
    work(life, chance, steps)
    life.catch_up()
    life.end()
    last = life.owner.next_number - 1
    complete = remaining(restored(memory, image_until(memory, last), base / "complete"))
    assert complete == remaining(Life(base / "primary", lambda *_: None))


@settings(max_examples=examples(5), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_base_after_an_error_is_there_as_a_whole(seed: int) -> None:
    run_in_new_directory(run_with_broken_rounds, seed, 10)


# ---- a bit that flips on the disk, in what only rounds have


@pytest.fixture
def five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Uploaded]:
    """An nsqd that has put five messages in rounds."""
    monkeypatch.setattr(log_files, "_LOOK_AGAIN_S", 0.01)
    (tmp_path / "primary").mkdir()
    objects = open_objects("memory://")
    life = Uploaded(tmp_path / "primary", objects, random.Random(7), store_interval_ns=0)
    life.create()
    for number in range(5):
        life.publish(b"message %d" % number)
    life.catch_up()
    yield life
    life.stop_stream()


def flip_in_log(directory: Path) -> Path:
    """Flip a bit of the last message, and return the path of the log file."""
    (path,) = directory.glob("*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"message 4")] ^= 1
    path.write_bytes(data)
    return path


def test_a_base_waits_for_the_repair_of_what_only_rounds_have(five: Uploaded, tmp_path: Path) -> None:
    broker = five.broker
    copy = StoreCopy(five.objects, broker.services.threadpool, five.stream.files, tmp_path)
    broker.log_files = LogFiles(broker.services, broker.topics, broker.removed_files, Repairs(lambda: [copy]))
    path = flip_in_log(tmp_path / "primary")
    base = five.owner.head.base
    five.stream.begin_base()
    wait_for(lambda: five.owner.head.base > base)
    assert five.stream.local_damage == ""
    assert b"message 4" in path.read_bytes()
    assert broker.log_files.repaired_bytes > 0


def test_a_store_that_has_lost_the_object_has_nothing_to_repair_with(five: Uploaded, tmp_path: Path) -> None:
    for number in range(100):
        five.publish(b"more %d" % number)
    base = five.owner.head.base
    five.stream.begin_base()
    wait_for(lambda: five.owner.head.base > base)
    log = five.broker.topics[TOPIC].log
    assert log is not None
    file = log.files[0]
    stored = five.stream.files.of_file(TOPIC, file)
    assert stored is not None
    five.objects.delete([stored.name])
    copy = StoreCopy(five.objects, five.broker.services.threadpool, five.stream.files, tmp_path)
    ranges = [(FILE_HEADER_BYTES, stored.size_bytes)]
    assert copy.fill(log, file.path, file, ranges) == ranges


def test_a_bit_that_flips_on_the_disk_does_not_replace_what_rounds_have(
    five: Uploaded, tmp_path: Path
) -> None:
    """A base would take it from the disk: bases wait, until a restart gets the right bytes from the rounds."""
    life = five
    objects = five.objects
    before = remaining(
        restored(objects, image_until(objects, life.owner.next_number - 1), tmp_path / "before")
    )
    path = flip_in_log(tmp_path / "primary")
    base = life.owner.head.base
    life.stream.begin_base()
    wait_for(lambda: bool(life.stream.local_damage))
    assert f"{path.name} is damaged" in life.stream.local_damage
    life.publish(b"later")
    life.catch_up()
    assert life.owner.head.base == base
    after = remaining(restored(objects, image_until(objects, life.owner.next_number - 1), tmp_path / "after"))
    for name, messages in before.items():
        assert after[name] == sorted([*messages, b"later"])


# ---- an nsqd that writes nothing


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Uploaded]:
    """An nsqd that has nothing to put, and looks at the head often."""
    monkeypatch.setattr(stream, "_LOOK_S", 0.01)
    (tmp_path / "primary").mkdir()
    life = Uploaded(tmp_path / "primary", open_objects("memory://"), random.Random(1), store_interval_ns=0)
    life.create()
    life.catch_up()
    yield life
    life.stop_stream()


def wait_for(condition: Callable[[], bool]) -> None:
    with gevent.Timeout(20):
        while not condition():
            gevent.sleep(0.001)


def test_an_idle_nsqd_finds_that_another_one_has_taken_over(idle: Uploaded, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    claim(idle.objects, "there", Claims(tmp_path / "other"), lambda _: None)
    wait_for(lambda: bool(idle.superseded))
    assert "belongs to there since its epoch 2" in idle.superseded[0]


def test_an_idle_nsqd_waits_for_a_head_that_was_deleted(idle: Uploaded) -> None:
    content, _ = idle.objects.get(HEAD_NAME)
    idle.objects.delete([HEAD_NAME])
    wait_for(lambda: idle.stream.outage is not None)
    assert idle.stream.outage is not None
    assert "head.json is missing in memory:, put it back: {" in idle.stream.outage.reason
    idle.objects.create(HEAD_NAME, content)
    wait_for(lambda: idle.stream.outage is None)
    assert idle.superseded == []


def test_an_nsqd_that_writes_does_not_look_at_the_head(
    idle: Uploaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_LOOK_S", 30.0)
    looks: list[None] = []
    monkeypatch.setattr(idle.owner, "look", lambda: looks.append(None))
    for _ in range(20):
        gevent.sleep(0.002)  # the greenlet has looked at its files
    assert looks == []


def test_an_outage_begins_with_the_request_that_hangs(
    idle: Uploaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [monotonic()]
    monkeypatch.setattr(calls, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(stream, "_LOOK_S", 30.0)
    is_over = Signal()
    begun_s: list[float] = []

    def hang(*_arguments: Any, **_flags: Any) -> None:
        begun_s.append(now_s[0])
        is_over.wait()
        raise StoreError("a time-out")

    monkeypatch.setattr(idle.owner, "append", hang)
    idle.publish(b"new")
    idle.stream.hurry()
    wait_for(lambda: bool(begun_s))
    now_s[0] += 4
    assert not idle.stream.outage
    now_s[0] += 6
    assert idle.stream.outage == (begun_s[0], "it has not answered a request for 10 s")
    is_over.set()
    wait_for(lambda: idle.stream.outage == (begun_s[0], "a time-out"))
    monkeypatch.undo()
    wait_for(lambda: not idle.stream.outage)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(20, 200))
def test_the_same_at_length(seed: int, steps: int) -> None:
    run_in_new_directory(run, seed, steps)


def test_the_lag_is_counted_from_the_oldest_change_also_while_a_base_is_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_COLLECTION_S", 3600.0)  # the next one waits for an answer too
    chance = random.Random(1)
    (tmp_path / "primary").mkdir()
    unreliable = Unreliable(open_objects("memory://"), chance)
    life = Uploaded(tmp_path / "primary", unreliable, chance, store_interval_ns=0)  # type: ignore[arg-type]
    life.create()
    for _ in range(2):
        life.publish(b"before")
        life.catch_up()
    assert life.stream.lag() == (0, 0, 0)
    unreliable.rate = 2.0  # nothing works
    life.publish(b"in a round")
    wait_for(lambda: life.stream.outage is not None)
    life.pass_time(5 * SECOND)
    life.publish(b"after it")
    life.pass_time(3 * SECOND)
    assert life.stream.lag().ms >= 8000
    # The round is stored, and the base that begins at once is not.
    monkeypatch.setattr(writing, "_MOST_BYTES", -1)
    monkeypatch.setattr(life, "stored", lambda _write: setattr(unreliable, "rate", 2.0))
    unreliable.rate = 0.0
    wait_for(lambda: life.stream.is_copying and life.stream.outage is not None)
    life.pass_time(SECOND)
    assert 4000 <= life.stream.lag().ms < 8000
    monkeypatch.setattr(writing, "_MOST_BYTES", 20_000)
    monkeypatch.setattr(life, "stored", lambda _write: None)
    unreliable.rate = 0.0
    life.catch_up()
    assert life.stream.lag() == (0, 0, 0)
    life.end()
    close_descriptors(tmp_path)
