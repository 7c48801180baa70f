"""Examples of consumers: what they promise when handlers fail, wait, or are told to stop."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest

from nsqd_py.testing.embedded import Nsqd
from tests.examples.conftest import BIN, Start
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.ours



def channels(nsqd: Nsqd, topic: str) -> list[dict[str, Any]]:
    return [channel for found in nsqd.stats(topic)["topics"] or () for channel in found["channels"]]


def channel(nsqd: Nsqd, topic: str) -> dict[str, Any]:
    """Return the figures of the only channel of a topic."""
    (figures,) = channels(nsqd, topic)
    return figures


def wait_until_all_are_finished(nsqd: Nsqd, topic: str) -> None:
    """Wait until the topic has a channel, and no message waits in it, is in flight or deferred."""

    def is_over() -> bool:
        found = channels(nsqd, topic)
        return bool(found) and not any(
            one["depth"] or one["in_flight_count"] or one["deferred_count"] for one in found
        )

    wait_until(is_over, 10, f"the messages of {topic} to be finished")


def test_retries_end_in_the_topic_of_dead_letters(nsqd: Nsqd, start: Start) -> None:
    nsqd.publish("orders", '{"amount": -1}', '{"amount": 7}')
    start("retry_then_dead_letters.py", FIRST_DELAY_S="0.01").wait_for("charged 7")
    nsqd.wait_for_depth("orders.dead", 1)
    wait_until_all_are_finished(nsqd, "orders")
    assert channel(nsqd, "orders")["requeue_count"] == 3
    dead = subprocess.run(
        [BIN / "nsq-tail", "--topic=orders.dead", "--n=1", f"--nsqd-tcp-address={nsqd.tcp_address}"],
        capture_output=True, timeout=20, check=True,
    )  # fmt: skip
    letter = json.loads(dead.stdout)
    assert (letter["error"], letter["body"]) == ("ValueError('a negative amount')", '{"amount": -1}')


def test_a_message_is_deferred_until_its_time(nsqd: Nsqd, start: Start) -> None:
    reader = start("scheduled.py", LONGEST_DELAY_S="0.2")
    began_s = time.monotonic()
    assert start("scheduled.py", "1", "call Ann", LONGEST_DELAY_S="0.2").wait_for_end() == 0
    reader.wait_for("^call Ann$")
    assert time.monotonic() - began_s >= 1
    wait_until_all_are_finished(nsqd, "reminders")
    assert channel(nsqd, "reminders")["requeue_count"] >= 2
