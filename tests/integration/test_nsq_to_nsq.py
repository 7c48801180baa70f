"""nsq-to-nsq as a process between real nsqds: that take, refuse, hang, are away, or are killed."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ledger import compare
from tests.support.nsqd_process import MakeNsqd, NsqdProcess, wait_until
from tests.support.tool_process import SOON, ToolProcess, numbered, publish, wait_until_all_are_done

MODULE = "nsq_apps", "nsq_to_nsq"
CHANNEL = "nsq_to_nsq"

Start = Callable[..., ToolProcess]


def to(*nsqds: NsqdProcess) -> list[str]:
    return [f"--destination-nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}" for nsqd in nsqds]


@pytest.fixture(scope="module")
def nsqds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NsqdProcess]]:
    """A source and two destinations, for tests that harm none of them."""
    directory = tmp_path_factory.mktemp("nsqds")
    started = [NsqdProcess(directory / f"nsqd{number}").start() for number in range(3)]
    yield started
    for nsqd in started:
        nsqd.destroy()


@pytest.fixture
def source(nsqds: list[NsqdProcess]) -> NsqdProcess:
    return nsqds[0]


@pytest.fixture
def one(nsqds: list[NsqdProcess]) -> NsqdProcess:
    return nsqds[1]


@pytest.fixture
def two(nsqds: list[NsqdProcess]) -> NsqdProcess:
    return nsqds[2]


NUMBERS = itertools.count()


@pytest.fixture
def topic(source: NsqdProcess) -> str:
    """A new one, for each test."""
    name = f"topic{next(NUMBERS)}"
    source.create(name, CHANNEL)
    return name


@pytest.fixture
def start(source: NsqdProcess, tmp_path: Path) -> Start:
    """`start(*flags)` makes the tool, between the source and what the flags say."""

    def make(*flags: str) -> ToolProcess:
        address = f"--nsqd-tcp-address=127.0.0.1:{source.tcp_port}"
        return ToolProcess(*MODULE, address, *SOON, *flags, log_path=tmp_path / "tool.log")

    return make


def arrived(nsqd: NsqdProcess, topic: str) -> list[bytes]:
    """What is in the topic, which no channel has had."""
    stats = nsqd.topic_stats(topic)
    if not stats:
        return []
    with nsqd.consumer(topic, "test", 2500) as client:
        return [message.body for message in client.consume(stats["depth"])]


# ---- what is forwarded


def test_every_message_goes_on_once(source: NsqdProcess, one: NsqdProcess, start: Start, topic: str) -> None:
    bodies = [*numbered(2000), bytes(range(256)), b"x" * 900_000, b"y" * 900_000]
    with start(f"--topic={topic}", *to(one)) as tool:
        publish(source, topic, *bodies)
        assert wait_until_all_are_done(source, topic) == 0
        assert tool.stop() == 0
        assert tool.output() == b""
        assert "[aggregate]: finished 250 - 99th: " in tool.log_text()
    compare(bodies, arrived(one, topic)).require_sound()


@pytest.mark.parametrize("destination_topic", ["", "joined"])
def test_several_topics(source: NsqdProcess, one: NsqdProcess, start: Start, topic: str, destination_topic: str) -> None:
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


def test_while_no_destination_is_there_nothing_is_lost(
    source: NsqdProcess, make_nsqd: MakeNsqd, start: Start, topic: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with start(f"--topic={topic}", f"--destination-nsqd-tcp-address=127.0.0.1:{port}") as tool:
        publish(source, topic, *numbered(50))
        tool.wait_for_log("messages are requeued")
        late = make_nsqd(f"--tcp-address=127.0.0.1:{port}")
        assert wait_until_all_are_done(source, topic) > 0
    compare(numbered(50), arrived(late, topic)).require_sound()


def test_a_message_too_large_for_the_destination_holds_up_no_other(
    source: NsqdProcess, make_nsqd: MakeNsqd, start: Start, topic: str
) -> None:
    small = make_nsqd("--max-msg-size=1000", "--max-body-size=20000")
    bodies = [*numbered(50), b"x" * 1001, *(b"%d" % number + b"y" * 900 for number in range(100))]
    with start(f"--topic={topic}", *to(small)) as tool:
        publish(source, topic, *bodies)
        wait_until(lambda: len(arrived_so_far(small, topic)) == 150, what="all others to arrive")
        tool.wait_for_log("E_BAD_MESSAGE")
        wait_until(lambda: count_left(source, topic) == 1, what="all others to be finished")
        assert tool.stop() == 0
    compare([body for body in bodies if len(body) <= 1000], arrived(small, topic), at_least_once=True).require_sound()


def count_left(nsqd: NsqdProcess, topic: str) -> int:
    stats = nsqd.channel_stats(topic, CHANNEL) or {}
    return sum(stats[count] for count in ("depth", "in_flight_count", "deferred_count"))


def arrived_so_far(nsqd: NsqdProcess, topic: str) -> range:
    stats = nsqd.topic_stats(topic)
    return range(stats["message_count"] if stats else 0)


@pytest.mark.ours  # what it has said OK to survives
def test_a_destination_is_killed_in_the_middle(
    source: NsqdProcess, one: NsqdProcess, make_nsqd: MakeNsqd, start: Start, topic: str
) -> None:
    victim = make_nsqd()
    bodies = map(b"%d".__mod__, itertools.count())

    def publish_and_see_some_arrive() -> bool:
        publish(source, topic, *itertools.islice(bodies, 200))
        return len(arrived_so_far(victim, topic)) > 200  # while the tool connects, the other one gets most

    with start(f"--topic={topic}", "--max-in-flight=100", *to(one, victim)) as tool:
        wait_until(publish_and_see_some_arrive, what="some to arrive")
        for number in range(12):
            publish(source, topic, *itertools.islice(bodies, 200))
            if number == 2:
                victim.kill()
        wait_until_all_are_done(source, topic)
        assert tool.stop() == 0
    victim.start()
    published = [b"%d" % number for number in range(int(next(bodies)))]
    verdict = compare(published, arrived(one, topic) + arrived(victim, topic), at_least_once=True).require_sound()
    # Whose OK was under way when it was killed has gone to the other one too.
    assert verdict.again <= 100
    assert verdict.most_deliveries <= 2


# ---- its end


def test_sigterm_in_the_middle_loses_and_repeats_nothing(source: NsqdProcess, one: NsqdProcess, start: Start, topic: str) -> None:
    publish(source, topic, *numbered(20_000))
    with start(f"--topic={topic}", *to(one)) as tool:
        wait_until(lambda: len(arrived_so_far(one, topic)) > 100, what="some to arrive")
        assert tool.stop() == 0
    stats = source.wait_for_channel(topic, CHANNEL, in_flight_count=0, client_count=0)
    assert (stats["timeout_count"], stats["requeue_count"]) == (0, 0)
    assert stats["depth"] > 0, "it was too fast for this test"
    bodies = arrived(one, topic)
    left = [message.body for message in source.consume_all(topic, CHANNEL)]
    assert len(left) == stats["depth"]
    compare(numbered(20_000), [*bodies, *left]).require_sound()
