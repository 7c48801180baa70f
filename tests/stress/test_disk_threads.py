"""What was acknowledged is kept while threads write to many topics at once, and threads switch at every bad moment.

nsqd's disk is slow, so that threads write. Each publisher sends to all topics with one call: nsqd then has a write for each
of them in one iteration of its loop. It is killed, started on a quick disk and drained, and the history is judged.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from functools import partial

import pytest

from tests.support import wire
from tests.support.background import Background
from tests.support.hostile_machine import SlowDisk, compiled_shim, drawn_seed, environment
from tests.support.ledger import Bodies, History, judge
from tests.support.nsqd_process import NsqdProcess, nsqd_command, wait_until
from tests.support.standby_processes import drain_into
from tests.support.sweeps import sampled
from tests.support.wire import Client, Closed

TOPICS = [f"t{number}" for number in range(24)]
PUBLISHERS = 2
LOAD_S = 4.0
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

    def __init__(self, nsqd: NsqdProcess, history: History) -> None:
        super().__init__(*(partial(self._publish, number) for number in range(PUBLISHERS)))
        self.rounds = [0] * PUBLISHERS
        self.refused: list[str] = []
        self._nsqd = nsqd
        self._history = history
        self._bodies = Bodies()

    def wait_for_answers(self) -> None:
        """Return when each publisher has had answers to what it had sent, and to what it sent next, or misses one."""
        before = list(self.rounds)

        def have_come() -> bool:
            return NO_ANSWER in self.refused or all(
                now > then + 1 for now, then in zip(self.rounds, before, strict=True)
            )

        wait_until(have_come, 3 * ANSWER_S, "answers to PUB")

    def _publish(self, number: int) -> None:
        """Again whenever nsqd ends the connection, as it does after an error."""
        while not self.is_over.is_set():
            with contextlib.suppress(Closed, ConnectionError), self._nsqd.connect() as client:
                while True:
                    self._publish_to_all(client, f"publisher-{number}")
                    self.rounds[number] += 1

    def _publish_to_all(self, client: Client, name: str) -> None:
        bodies = self._bodies.take(len(TOPICS))
        sent = [
            self._history.sending(topic, [body], name) for topic, body in zip(TOPICS, bodies, strict=True)
        ]
        client.send(*map(wire.pub, TOPICS, bodies))
        for publish in sent:
            try:
                frame = client.next_frame(ANSWER_S)
            except TimeoutError:
                self.refused.append(NO_ANSWER)
                raise Closed from None
            if frame != wire.OK:
                self.refused.append(frame.data.decode())
                self._history.refused(publish, frame.data.decode())
                raise Closed
            self._history.ok(publish)


@pytest.mark.ours
@pytest.mark.crash
@pytest.mark.parametrize("sync_every", sampled([1, 2500], 2500))
def test_writes_in_threads_lose_nothing(tmp_path, sync_every, tally):
    shim = compiled_shim(tmp_path)
    if shim is None:
        pytest.skip("without a C compiler, the disk is not slowed down")
    seed = drawn_seed()
    print(f"seed {seed}")
    hostile = environment(seed, tmp_path / "nsqd", shim=shim, disk=DISK)
    command = ["env", *(f"{name}={value}" for name, value in hostile.items()), *nsqd_command()]
    history = History(tmp_path / "history.jsonl")
    sync = f"--sync-every={sync_every}"
    with NsqdProcess(tmp_path / "nsqd", sync, command=command) as nsqd:
        nsqd.start()
        for topic in TOPICS:
            nsqd.create(topic, CHANNEL)
            history.created(topic, CHANNEL)
        with Publishing(nsqd, history) as publishing:
            time.sleep(LOAD_S)
            wait_until(lambda: "the disk is slow" in nsqd.log_text(), what="threads that write")
            publishing.wait_for_answers()
            publishing.is_over.set()
            history.killed()
            nsqd.kill()
        log = nsqd.log_text()
    with NsqdProcess(tmp_path / "nsqd", sync).start() as nsqd:
        history.started()
        for topic in TOPICS:
            drain_into(history, nsqd, topic, CHANNEL)
    verdict = judge(history)
    tally(kills=1, **verdict.counts())
    assert (Counter(publishing.refused), verdict.findings) == (Counter(), [])
    assert "internal error" not in log
