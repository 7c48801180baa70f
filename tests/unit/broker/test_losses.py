"""What a start notes of messages and ends of logs that may be lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nsqd_py.broker.lifetime.losses import Losses


def topics(**next_seqs: int) -> Any:
    return {name: SimpleNamespace(next_seq=next_seq) for name, next_seq in next_seqs.items()}


@pytest.fixture
def losses() -> Losses:
    losses = Losses()
    losses.note_open_end("with_standby", 7, may_be_given_back=True, may_be_cut=False)
    losses.note_open_end("alone", 5, may_be_given_back=False, may_be_cut=True)
    return losses


def test_an_end_is_open_until_the_log_goes_on(losses: Losses) -> None:
    assert losses.is_end_open("with_standby", 7)
    assert losses.is_end_open("alone", 5)
    assert not losses.is_end_open("with_standby", 8)
    assert not losses.is_end_open("stopped_cleanly", 0)


def test_a_stop_records_the_ends_that_standbys_may_still_have(losses: Losses) -> None:
    assert losses.has_open_ends
    assert losses.open_ends(topics(with_standby=7, alone=5, new=0)) == {"with_standby"}
    assert losses.open_ends(topics(with_standby=8, alone=5)) == set()
    assert losses.open_ends(topics(alone=5)) == set()  # it was deleted
    losses.standbys_answered()
    assert not losses.has_open_ends
    assert losses.open_ends(topics(with_standby=7)) == set()


def test_missing_messages_are_those_of_their_topic(losses: Losses) -> None:
    assert not losses.has_missing
    losses.note_missing("t", [(3, 6)], [(5, 6)])
    assert losses.has_missing
    assert (losses.missing("t"), losses.unsure("t")) == ([(3, 6)], [(5, 6)])
    assert not losses.missing("other")
    assert not losses.unsure("other")
