"""The history of a soak finds what is lost and what nobody published, in whatever chapter."""

from __future__ import annotations

import pytest

from tests.soak import topics
from tests.soak.topics import SoakTopic, body_of


@pytest.fixture
def topic(tmp_path, monkeypatch) -> SoakTopic:
    monkeypatch.setattr(topics, "PER_CHAPTER", 10)
    return SoakTopic(tmp_path, "orders", ("billing", "archive"))


def publish(topic: SoakTopic, count: int) -> list[bytes]:
    one = topic.sending(count)
    one.ok()
    return list(one.bodies)


def test_all_that_was_acknowledged_comes_to_each_channel(topic):
    bodies = [body for count in (1, 3, 4, 5, 10, 9, 1) for body in publish(topic, count)]
    topic.sending(2).failed("no answer")
    for channel in topic.channels:
        for body in bodies:
            topic.receive(channel, body)
    topic.receive("billing", bodies[7])
    verdicts = list(topic.verdicts())
    assert len(verdicts) == 5
    assert [finding for verdict in verdicts for finding in verdict.findings] == []
    assert sum(verdict.acknowledged for verdict in verdicts) == len(bodies) == 33
    assert sum(verdict.again for verdict in verdicts) == 1
    assert topic.published == 35


def test_what_is_lost_or_strange_is_found(topic):
    bodies = [body for _ in range(6) for body in publish(topic, 4)]
    for body in bodies:
        topic.receive("billing", body)
        if body is not bodies[9]:
            topic.receive("archive", body)
    for strange in (body_of(1) + b"x", b"no number", body_of(1000)):
        topic.receive("billing", strange)
    found = [(finding.check, finding.where) for verdict in topic.verdicts() for finding in verdict.findings]
    assert sorted(found) == [("lost", "orders/archive")] + 3 * [("unseen", "orders/billing")]
