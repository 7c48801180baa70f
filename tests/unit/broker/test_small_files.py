"""The look for small files that another program removed: a little at a time, however many channels a topic has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nsqd_py.broker.upkeep import small_files
from nsqd_py.broker.upkeep.small_files import SmallFiles


class Looks:
    """A pool of threads that keeps what each look would look for."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def begin(self, work: Any, arguments: tuple[Any, ...], on_ended: Any) -> None:
        self.found.append(arguments[0])


def test_a_look_has_a_bound_and_all_positions_get_their_turn(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(3 * small_files._CHECKED_AT_ONCE)]
    journal = SimpleNamespace(size_bytes=1)
    channels = {name: SimpleNamespace(name=name, journal=journal) for name in names}
    topics = {
        name: SimpleNamespace(name=name, log=object(), is_closed=False, channels=channels)
        for name in ("a", "b")
    }
    looks = Looks()
    services: Any = SimpleNamespace(
        directory=tmp_path,
        data_path=SimpleNamespace(problem=""),
        threadpool=looks,
        alarms=SimpleNamespace(alarm=lambda check: SimpleNamespace(set=lambda _: None)),
    )
    checks: Any = SmallFiles(services, topics, *[lambda *_: None] * 3, keeps_epochs=lambda: False)  # type: ignore[arg-type]
    looks_of_a_pass = -(-2 * (len(names) + 1) // small_files._CHECKED_AT_ONCE)
    for _ in range(1 + looks_of_a_pass):  # the first one begins the pass
        checks._check(0)
    seen = Counter(path for look in looks.found for path in (*look.topics, *look.channels))
    assert max(len(look.topics) + len(look.channels) for look in looks.found) == small_files._CHECKED_AT_ONCE
    assert len(seen) == 2 * (len(names) + 1)
    assert set(seen.values()) == {1}
