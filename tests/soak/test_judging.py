"""The soak finds what it looks for: a loss, a stranger, a leak; and lets noise pass."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.ledger import Bits, TopicLedger, body_of
from tests.soak.slopes import Bound, theil_sen, thinned, trend
from tests.support.nsqd_process import REPOSITORY

MEMORY = Bound(0.10, 5.0)
CHANCE = random.Random(1)


def noisy(level: float, growth: float, count: int = 400) -> list[float]:
    return [level + growth * place / count + CHANCE.gauss(0, 3) for place in range(count)]


def test_bits_are_a_set() -> None:
    one, other = Bits(), Bits()
    assert [one.add(number) for number in (0, 7, 8, 900, 7)] == [True, True, True, True, False]
    other.add(8)
    assert len(one) == 4
    assert list(one.without(other)) == [0, 7, 900]
    assert list(other.without(one)) == []


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    topic = TopicLedger("t", ["a", "b"])
    first, second, third = topic.take_numbers(3)
    topic.acknowledge([first, second])
    topic.receive("a", body_of(first))
    topic.receive("b", body_of(first))
    topic.receive("b", body_of(second))
    topic.receive("b", body_of(third))  # it was refused, and stored after all
    assert (topic.lost("a"), topic.lost("b")) == ([second], [])
    assert (topic.repeated, topic.strange) == (0, [])
    topic.receive("b", body_of(third))
    assert topic.repeated == 1


@pytest.mark.parametrize("body", [b"x", body_of(9), body_of(0) + b"x", b""])
def test_a_message_that_nobody_published_is_found(body: bytes) -> None:
    topic = TopicLedger("t", ["a"])
    topic.take_numbers(9)
    topic.receive("a", body)
    assert topic.strange == [body[:100]]


def test_the_slope_is_the_median_of_all_slopes() -> None:
    assert theil_sen([0, 1, 2, 3, 1000]) == pytest.approx(1)
    assert theil_sen([5, 5]) == 0
    with pytest.raises(ValueError, match="two values"):
        theil_sen([1])


def test_noise_and_peaks_are_steady_and_a_leak_is_not() -> None:
    steady = noisy(50, 0)
    steady[200:210] = [500.0] * 10
    found = trend(steady, MEMORY)
    assert found is not None
    assert found.is_steady
    leak = trend(noisy(50, 30), MEMORY)
    assert leak is not None
    assert not leak.is_steady
    assert leak.growth == pytest.approx(0.75 * 30, rel=0.2)  # what came after the warm-up


def test_growth_during_the_warm_up_is_none() -> None:
    found = trend([*range(100), *[100.0] * 300], MEMORY)
    assert found is not None
    assert found.growth == 0


def test_too_few_samples_have_no_trend() -> None:
    assert trend([1.0, 2.0], MEMORY) is None
    assert thinned([], 3) == []
    assert thinned([1, 2, 3, 4, 5], 3) == [1.5, 3.5, 5]


@pytest.mark.ours
@pytest.mark.slow
def test_a_short_soak_passes_and_writes_its_plot(tmp_path: Path) -> None:
    output = tmp_path / "soak"
    command = [sys.executable, "-m", "tests.soak", "--minutes=0.5", f"--output={output}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("soak passed: 0.5 minutes")
    figures = json.loads(output.with_suffix(".json").read_text())
    assert figures["lost"] == 0
    assert figures["acknowledged"] > 1000
    assert output.with_suffix(".svg").read_text().count("<polyline") >= 15
