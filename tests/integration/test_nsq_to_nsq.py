"""nsq-to-nsq as a process between real nsqds: that take, refuse, hang, are away, or are killed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from tests.support.ledger import compare
from tests.support.module_servers import module_nsqd
from tests.support.network import free_ports
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import SOON, ToolProcess, numbered, publish, wait_until_all_are_done
from tests.support.wire import bodies

CHANNEL = "nsq_to_nsq"

Start = Callable[..., ToolProcess]


def to(*nsqds: NsqdProcess) -> list[str]:
    return [f"--destination-nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}" for nsqd in nsqds]


# A source and a destination, for tests that harm none of them.
source = module_nsqd()
one = module_nsqd()


@pytest.fixture
def topic(source, topic) -> str:
    source.create(topic, CHANNEL)
    return topic


@pytest.fixture
def start(start, source) -> Start:
    """`start(*flags)` makes the tool, between the source and what the flags say."""
    return partial(start, "nsq_to_nsq", f"--nsqd-tcp-address=127.0.0.1:{source.tcp_port}", *SOON)


def arrived(nsqd: NsqdProcess, topic: str) -> list[bytes]:
    """What is in the topic, which no channel has had."""
    stats = nsqd.topic_stats(topic) or {"depth": 0}
    return bodies(nsqd.consume(topic, "test", stats["depth"]))


# ---- what is forwarded


def test_an_nsqd_under_another_name_does_not_get_its_own_messages_back(source, start, topic):
    publish(source, topic, *numbered(10))
    again = f"--destination-nsqd-tcp-address=localhost:{source.tcp_port}"
    with start(f"--topic={topic}", again) as tool:
        assert tool.wait() == 1
        assert f"messages would go from 127.0.0.1:{source.tcp_port} to itself" in tool.log_text()
    assert source.topic_stats(topic)["message_count"] == 10
    assert source.channel_stats(topic, CHANNEL)["depth"] == 10


def test_every_message_goes_on_once(source, one, start, topic):
    sent = [*numbered(2000), bytes(range(256)), b"x" * 900_000, b"y" * 900_000]
    with start(f"--topic={topic}", *to(one)) as tool:
        publish(source, topic, *sent)
        assert wait_until_all_are_done(source, topic) == 0
        assert tool.stop() == 0
        assert tool.output() == b""
        assert "[aggregate]: finished 250 - 99th: " in tool.log_text()
    compare(sent, arrived(one, topic)).require_sound()


@pytest.mark.parametrize("destination_topic", ["", "joined"])
def test_several_topics(source, one, start, topic, destination_topic):
    other = f"{topic}b"
    source.create(other, CHANNEL)
    flags = [f"--destination-topic={destination_topic}"] if destination_topic else []
    with start(f"--topic={topic}", f"--topic={other}", *flags, *to(one)):
        publish(source, topic, b"a")
        publish(source, other, b"b")
        wait_until_all_are_done(source, topic)
        wait_until_all_are_done(source, other)
    if destination_topic:
        assert sorted(arrived(one, destination_topic)) == [b"a", b"b"]
    else:
        assert (arrived(one, topic), arrived(one, other)) == ([b"a"], [b"b"])


# ---- what goes wrong


def test_while_no_destination_is_there_nothing_is_lost(source, make_nsqd, start, topic):
    (port,) = free_ports(1)
    with start(f"--topic={topic}", f"--destination-nsqd-tcp-address=127.0.0.1:{port}") as tool:
        publish(source, topic, *numbered(50))
        tool.wait_for_log("messages are requeued")
        late = make_nsqd(f"--tcp-address=127.0.0.1:{port}")
        assert wait_until_all_are_done(source, topic) > 0
    compare(numbered(50), arrived(late, topic)).require_sound()


def test_a_message_too_large_for_the_destination_holds_up_no_other(source, make_nsqd, start, topic):
    small = make_nsqd("--max-msg-size=1000", "--max-body-size=20000")
    sent = [*numbered(50), b"x" * 1001, *(b"%d" % number + b"y" * 900 for number in range(100))]
    with start(f"--topic={topic}", *to(small)) as tool:
        publish(source, topic, *sent)
        wait_until(lambda: arrived_so_far(small, topic) == 150, what="all others to arrive")
        tool.wait_for_log("E_BAD_MESSAGE")
        wait_until(lambda: count_left(source, topic) == 1, what="all others to be finished")
        assert tool.stop() == 0
    compare(
        [body for body in sent if len(body) <= 1000], arrived(small, topic), at_least_once=True
    ).require_sound()


def count_left(nsqd: NsqdProcess, topic: str) -> int:
    stats = nsqd.channel_stats(topic, CHANNEL)
    return sum(stats[count] for count in ("depth", "in_flight_count", "deferred_count"))


def arrived_so_far(nsqd: NsqdProcess, topic: str) -> int:
    return (nsqd.topic_stats(topic) or {"message_count": 0})["message_count"]


@pytest.mark.ours  # what it has said OK to survives
def test_a_destination_is_killed_in_the_middle(source, one, make_nsqd, start, topic):
    victim = make_nsqd()
    numbers = map(b"%d".__mod__, itertools.count())

    def publish_and_see_some_arrive():
        publish(source, topic, *itertools.islice(numbers, 200))
        return arrived_so_far(victim, topic) > 200  # while the tool connects, the other one gets most

    with start(f"--topic={topic}", "--max-in-flight=100", *to(one, victim)) as tool:
        wait_until(publish_and_see_some_arrive, what="some to arrive")
        for number in range(12):
            publish(source, topic, *itertools.islice(numbers, 200))
            if number == 2:
                victim.kill()
        wait_until_all_are_done(source, topic)
        assert tool.stop() == 0
    victim.start()
    published = [b"%d" % number for number in range(int(next(numbers)))]
    verdict = compare(
        published, arrived(one, topic) + arrived(victim, topic), at_least_once=True
    ).require_sound()
    # Whose OK was under way when it was killed has gone to the other one too.
    assert verdict.again <= 100
    assert verdict.most_deliveries <= 2


# ---- its end


def test_sigterm_in_the_middle_loses_and_repeats_nothing(source, one, start, topic):
    publish(source, topic, *numbered(20_000))
    with start(f"--topic={topic}", *to(one)) as tool:
        wait_until(lambda: arrived_so_far(one, topic) > 100, what="some to arrive")
        assert tool.stop() == 0
    stats = source.wait_for_channel(topic, CHANNEL, in_flight_count=0, client_count=0)
    assert (stats["timeout_count"], stats["requeue_count"]) == (0, 0)
    assert stats["depth"] > 0, "it was too fast for this test"
    left = bodies(source.consume_all(topic, CHANNEL))
    assert len(left) == stats["depth"]
    compare(numbered(20_000), arrived(one, topic) + left).require_sound()
