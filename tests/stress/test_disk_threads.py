"""What was acknowledged is kept while threads write to many topics at once, and threads switch at every bad moment.

nsqd's disk is slow, so that threads write. Each publisher sends to all topics with one call: nsqd then has a write for each
of them in one iteration of its loop. It is killed, started on a quick disk, and all is consumed and compared.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.background import Background
from tests.support.hostile_machine import SlowDisk, compiled_shim, drawn_seed, environment
from tests.support.ledger import Lives, TopicLedger
from tests.support.nsqd_process import NsqdProcess, nsqd_command, wait_until
from tests.support.tally import Tally
from tests.support.wire import Client, Closed

TOPICS = 24
PUBLISHERS = 2
LOAD_S = 8.0
CHANNEL = "c"
ANSWER_S = 30.0
NO_ANSWER = f"a PUB was not answered within {ANSWER_S:g} s"
# So many long calls that threads write all the time, and some short ones, so that jobs end at all moments.
DISK = SlowDisk(short_share=200, short_us=1_000, long_share=5, long_us=240_000)


class Publishing(Background):
    """Publishers that send a message to every topic with one call, until nsqd is dead.

    rounds   how often each has done so, and had all answers
    refused  errors that nsqd answered, and answers that did not come
    """

    def __init__(self, nsqd: NsqdProcess, topics: list[TopicLedger]) -> None:
        super().__init__(*[self._publish] * PUBLISHERS)
        self.rounds: list[int] = []
        self.refused: list[str] = []
        self._nsqd = nsqd
        self._topics = topics

    def wait_for_answers(self) -> None:
        """Return when each publisher has had answers to what it had sent, and to what it sent next, or misses one."""
        before = list(self.rounds)

        def have_come() -> bool:
            return NO_ANSWER in self.refused or all(now > then + 1 for now, then in zip(self.rounds, before, strict=True))

        wait_until(have_come, 3 * ANSWER_S, "answers to PUB")

    def _publish(self) -> None:
        """Again whenever nsqd ends the connection, as it does after an error."""
        number = len(self.rounds)
        self.rounds.append(0)
        while not self.is_over.is_set():
            with contextlib.suppress(Closed, ConnectionError), self._nsqd.connect() as client:
                while True:
                    self._publish_to_all(client)
                    self.rounds[number] += 1

    def _publish_to_all(self, client: Client) -> None:
        sent = [topic.publishing(1, time.time_ns()) for topic in self._topics]
        client.send(*(wire.pub(topic.name, *new) for topic, new in zip(self._topics, sent, strict=True)))
        for new in sent:
            try:
                frame = client.next_frame(ANSWER_S)
            except TimeoutError:
                self.refused.append(NO_ANSWER)
                raise Closed from None
            if frame != wire.OK:
                self.refused.append(frame.data.decode())
                raise Closed
            for published in new.values():
                published.answered_ns = time.time_ns()


def consume(nsqd: NsqdProcess, topics: list[TopicLedger]) -> list[str]:
    """Finish all that there is; return what is wrong, which includes what is lost."""
    wrong: list[str] = []
    for topic in topics:
        (channel,) = topic
        for message in nsqd.consume_all(topic.name, CHANNEL):
            channel.delivered(message, time.time_ns())
            channel.finish(message.body, time.time_ns())
        wrong += channel.wrong
        wrong += [f"{topic.name} {number.decode()} was lost" for number in channel.lost()]
    return wrong


@pytest.mark.ours
@pytest.mark.crash
@pytest.mark.parametrize("flags", [(), ("--sync-every=1",)], ids=["default", "sync-every=1"])
def test_writes_in_threads_lose_nothing(tmp_path: Path, flags: tuple[str, ...], tally: Tally) -> None:
    shim = compiled_shim(tmp_path)
    if shim is None:
        pytest.skip("without a C compiler, the disk is not slowed down")
    seed = drawn_seed()
    print(f"seed {seed}")
    hostile = environment(seed, tmp_path / "nsqd", shim=shim, disk=DISK)
    command = ["env", *(f"{name}={value}" for name, value in hostile.items()), *nsqd_command()]
    lives = Lives()
    topics = [TopicLedger(f"t{number}", (CHANNEL,), lives) for number in range(TOPICS)]
    with NsqdProcess(tmp_path / "nsqd", *flags, command=command) as nsqd:
        nsqd.start()
        for topic in topics:
            nsqd.create(topic.name, CHANNEL)
        lives.begin()
        with Publishing(nsqd, topics) as publishing:
            time.sleep(LOAD_S)
            publishing.wait_for_answers()
            publishing.is_over.set()
            lives.end(time.time_ns())
            nsqd.kill()
        log = nsqd.log_text()
    with NsqdProcess(tmp_path / "nsqd", *flags).start() as nsqd:
        lives.begin()
        wrong = consume(nsqd, topics)
    lost = sum("was lost" in each for each in wrong)
    tally(kills=1, acknowledged=sum(topic.acknowledged_count for topic in topics), lost=lost)
    assert (Counter(publishing.refused), wrong) == (Counter(), [])
    assert "the disk is slow" in log, "no thread has written"
    assert "internal error" not in log
