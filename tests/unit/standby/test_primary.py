"""What a primary says when a standby begins to follow, and when one acknowledges nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.standby.primary import Standbys
from tests.support.broker_life import Life
from tests.support.standby_link import StandbyLink
from tests.unit.fakes import SECOND, FakeLog, FakeThreadPool

LEASE = "etcd://a:1/b"
TIMEOUT = {"standby_timeout_ns": SECOND, "standby_on_timeout": "refuse"}


@pytest.mark.parametrize(
    ("lease", "acks", "standbys", "warnings"),
    [(LEASE, 1, 1, 0), (LEASE, 1, 2, 1), (LEASE, 2, 2, 0), (LEASE, 0, 2, 0), ("", 1, 2, 0)],
)
def test_a_lease_that_may_choose_a_standby_that_lacks_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lease: str, acks: int, standbys: int, warnings: int
) -> None:
    (tmp_path / "primary").mkdir()
    warned: list[str] = []
    monkeypatch.setattr(FakeLog, "warning", lambda _, text, *arguments: warned.append(text % arguments))
    life = Life(tmp_path / "primary", lambda *_: None, lease=lease, standby_acks=acks, **TIMEOUT)
    life.broker.replication = replication = Standbys(life.broker, tmp_path / "primary", FakeThreadPool())
    for number in range(standbys):
        path = tmp_path / str(number)
        path.mkdir()
        StandbyLink(replication, path, []).connect()
    assert sum("lacks messages" in line for line in warned) == warnings
    life.end()


def test_a_member_that_acknowledges_nothing_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one line in the log; one that acknowledges its rounds stays."""
    (tmp_path / "primary").mkdir()
    warned: list[str] = []
    monkeypatch.setattr(FakeLog, "warning", lambda _, text, *arguments: warned.append(text % arguments))
    life = Life(tmp_path / "primary", lambda *_: None, lease="", standby_acks=0, **TIMEOUT)
    life.broker.replication = replication = Standbys(life.broker, tmp_path / "primary", FakeThreadPool())
    closed: list[str] = []
    links = []
    for number, acknowledges in enumerate((True, False)):
        path = tmp_path / str(number)
        path.mkdir()
        link = StandbyLink(replication, path, [])
        link.acknowledges = acknowledges
        link.close = lambda reason, link=link: (closed.append(reason), link.end())  # type: ignore[method-assign]
        links.append(link.connect())
    passed_s = 0
    while not closed and passed_s < 60:
        life.pass_time(SECOND)
        passed_s += 1
    assert passed_s > 30
    assert closed == ["no ACK in time"]
    assert (links[0].closed, links[1].closed) == (False, True)
    assert sum("no ACK for 30 s" in line for line in warned) == 1
    life.end()
