"""Settings that differ from topic to topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsqd_py.options import BadOptions, check_options, read_options
from nsqd_py.queue.dead_letters import TopicPolicy, dead_letter_topic, policy_of
from nsqd_py.settings.durations import HOUR_NS
from nsqd_py.settings.types import ByTopic


def test_settings_by_topic() -> None:
    options = read_options(
        [
            "--retention-time=1h",
            "--retention-time",
            "logs.*=24h",
            "--retention-time=logs.debug=2h",
            "--max-attempts=orders=5",
            "--dead-letter-topic=orders=target",
            "--message-ttl=logs.*=48h",
            "--retention-bytes=1000",
            "--max-topic-bytes=?=7",
        ]
    )
    assert policy_of(options, "orders") == TopicPolicy(HOUR_NS, 1000, 5, "target")
    assert policy_of(options, "logs.debug") == TopicPolicy(24 * HOUR_NS, 1000, 0, "logs.debug.dead", 48 * HOUR_NS)
    assert policy_of(options, "x").max_bytes == 7


def test_the_last_value_for_all_counts() -> None:
    assert read_options(["--max-attempts=3", "--max-attempts=9"]).max_attempts == ByTopic(9)


@pytest.mark.parametrize("text", ['retention_time = ["1h", "logs.*=24h"]', 'retention_time = "1h"', "retention_time = 3600000"])
def test_in_a_config_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nsqd.toml"
    path.write_text(text)
    assert read_options(["--config", str(path)]).retention_time_ns.of("orders") == HOUR_NS


@pytest.mark.parametrize("flag", ["--retention-time=logs=5", "--retention-time==5s", "--max-attempts=logs=many"])
def test_not_understood(flag: str) -> None:
    with pytest.raises(SystemExit):
        read_options([flag])


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--max-attempts=logs=-1", "--max-attempts must not be negative"),
        ("--dead-letter-topic=a b", '--dead-letter-topic must be a valid topic name, got "a b"'),
        ("--max-disk-bytes=-1", "--max-disk-bytes must not be negative"),
        ("--min-free-disk-bytes=-1", "--min-free-disk-bytes must not be negative"),
    ],
)
def test_refused(flag: str, says: str) -> None:
    with pytest.raises(BadOptions, match=says):
        check_options(read_options([flag]))


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("orders", "orders.dead"),
        ("orders.dead", "orders.dead"),
        ("orders#ephemeral", "orders.dead#ephemeral"),
        ("orders.dead#ephemeral", "orders.dead#ephemeral"),
        ("o" * 64, "o" * 59 + ".dead"),
        ("o" * 54 + "#ephemeral", "o" * 49 + ".dead#ephemeral"),
    ],
)
def test_topics_of_dead_letters(topic: str, expected: str) -> None:
    assert dead_letter_topic(topic, "") == expected
    assert len(expected) <= 64


def test_dead_letters_stay_where_they_are() -> None:
    options = read_options(["--max-attempts=5", "--dead-letter-topic=orders=grave"])
    assert policy_of(options, "orders.dead").max_attempts == 0
    assert policy_of(options, "orders").max_attempts == 5
