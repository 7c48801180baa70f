"""What an operator empties or deletes frees its disk space at once, also that of the file that is being written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nsqd_py.broker.broker import Broker
from nsqd_py.queue.topic import Topic
from nsqd_py.runtime.disk_speed import SLOW_NS
from tests.unit.fakes import SECOND, World, start_broker

BODY = b"x" * 10_000
FILE_BYTES = 1 << 20
KEPT_BYTES = 1000  # the header of a new file

Act = Callable[[Broker, Topic], object]
ACTS: dict[str, Act] = {
    "empty a channel": lambda broker, topic: broker.empty_channel(topic, topic.channels["c"]),
    "delete a channel": lambda broker, topic: broker.delete_channel(topic, "c"),
    "empty a topic": lambda broker, topic: broker.empty_topic(topic),
    "delete a topic": lambda broker, topic: broker.delete_topic(topic.name),
}


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir() if not path.name.startswith("nsqd."))


class Space:
    """A topic of so many messages, of which an operator frees the space by an act."""

    def __init__(self, directory: Path, act: str, count: int) -> None:
        self.world = World()
        self.broker = start_broker(self.world, directory, max_bytes_per_file=FILE_BYTES)
        self.topic = self.broker.get_topic("t")
        if "channel" in act:
            self.broker.get_channel(self.topic, "c")
        for _ in range(count):
            self.world.publish(self.topic, BODY)
        self._act = ACTS[act]

    def free(self) -> None:
        self._act(self.broker, self.topic)


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("count", [50, 250], ids=["one file", "several files"])
@pytest.mark.parametrize("is_slow", [False, True], ids=["fast", "slow"])
def test_the_space_is_free_at_once(tmp_path: Path, act: str, count: int, is_slow: bool) -> None:
    space = Space(tmp_path, act, count)
    assert log_bytes(tmp_path) > count * len(BODY)
    if is_slow:
        space.broker.disk_speed.is_measured = True
        space.broker.disk_speed.end(space, SLOW_NS)
    space.free()
    if is_slow:
        space.world.pass_time(20 * SECOND)
    assert log_bytes(tmp_path) < KEPT_BYTES


@pytest.mark.parametrize("act", ACTS)
def test_the_space_is_free_in_the_end_when_the_removal_of_a_file_takes_long(
    tmp_path: Path, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk counts as slow from then on, for 10 s, and nothing else happens to the topic."""
    space = Space(tmp_path, act, count=350)
    speed = space.broker.disk_speed
    speed.is_measured = True

    def attempt(remove: Callable[[], object]) -> bool:
        if speed.is_slow:
            return False
        remove()
        speed.note(SLOW_NS)
        return True

    monkeypatch.setattr(speed, "attempt", attempt)
    space.free()
    for _ in range(10):
        space.world.pass_time(20 * SECOND)
    assert log_bytes(tmp_path) < KEPT_BYTES
