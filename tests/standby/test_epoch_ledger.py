"""The ledger of the failovers can find fault."""

from __future__ import annotations

import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from tests.standby.lease_failovers import Happened, Report, answered_alone
from tests.support.epoch_ledger import DELIVERY, EpochLedger, Source

A1, B2 = Source("a", 1), Source("b", 2)


@pytest.fixture
def ledger() -> EpochLedger:
    """Primary a, then b."""
    ledger = EpochLedger()
    ledger.ok([b"x"], A1, 10.0)
    ledger.delivered("c", b"x", A1, 10.1)
    ledger.ok([b"y"], B2, 12.0)
    ledger.delivered("c", b"y", B2, 12.5)
    return ledger


def violations(ledger: EpochLedger, fault: str = "kill") -> list[str]:
    return Report(ledger, [Happened(fault, 9.0)]).violations(ledger.lost())


def test_no_fault(ledger: EpochLedger) -> None:
    assert violations(ledger) == []
    assert ledger.newest_epoch == 2
    assert ledger.first_s(DELIVERY, 1) == 12.5
    assert ledger.serves_now("b")
    assert not ledger.serves_now("a")


def test_a_message_that_came_nowhere_or_in_one_channel_only_is_lost(ledger: EpochLedger) -> None:
    ledger.ok([b"z"], B2, 13.0)
    assert violations(ledger) == ["lost: z"]
    ledger.delivered("c", b"z", B2, 13.1)
    assert violations(ledger) == []
    ledger.delivered("other", b"x", B2, 13.1)
    assert violations(ledger) == ["lost: y", "lost: z"]


def test_two_primaries_of_one_epoch(ledger: EpochLedger) -> None:
    ledger.delivered("c", b"y", Source("a", 2), 13.0)
    assert violations(ledger) == ["epoch 2: ['a', 'b'] served"]


def test_an_old_primary_that_serves_beside_the_new_one(ledger: EpochLedger) -> None:
    ledger.ok([b"x"], A1, 11.9)  # it arrived in time, and was noted later
    assert violations(ledger) == []
    ledger.delivered("c", b"x", A1, 12.2)
    assert violations(ledger) == ["kill: delivery of a in epoch 1, 0.200 s late"]
    assert violations(ledger, "freeze") == []
    ledger.ok([b"x"], A1, 12.3)
    assert violations(ledger, "freeze") == ["freeze: OK of a in epoch 1, 0.300 s late"]


def test_deliveries_beyond_the_first_are_counted(ledger: EpochLedger) -> None:
    ledger.delivered("c", b"x", B2, 13.0)
    ledger.delivered("other", b"x", B2, 13.0)
    assert ledger.doubled == 1


def test_what_was_answered_alone_may_be_lost(tmp_path: Path) -> None:
    """The log has wall time, and the ledger the steady clock."""
    now_s, wall_s = time.monotonic(), time.time()
    ledger = EpochLedger(received={"c": Counter()})
    for body, at_s in ((b"before", -9.0), (b"alone", -6.0), (b"after", -3.0)):
        ledger.ok([body], A1, now_s + at_s)
    lines = (
        (-8.0, "WARNING: STANDBY: 0 standbys are connected; publishers are answered without them from now on"),
        (-5.0, "INFO: STANDBY: publishers wait for standbys again"),
    )
    log = tmp_path / "nsqd.log"
    stamps = [(datetime.fromtimestamp(wall_s + at_s).strftime("%Y/%m/%d %H:%M:%S.%f"), text) for at_s, text in lines]
    log.write_text("".join(f"[nsqd] {stamp} {text}\n" for stamp, text in stamps))
    report = Report(ledger, alone=answered_alone([log], ledger))
    assert report.alone == {b"alone"}
    assert report.violations(ledger.lost()) == ["lost: after", "lost: before"]
