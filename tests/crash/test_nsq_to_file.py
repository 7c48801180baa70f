"""nsq-to-file is killed under load, again and again: every message is in some file, and every file can be read.

A publisher notes what was answered OK. The files are small, so that kills come while files are closed and moved too,
and while those of the run before are repaired.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support import wire
from tests.support.background import Background
from tests.support.ledger import Bodies, History, judge
from tests.support.nsqd_process import NsqdProcess, wait_until
from tests.support.tool_process import ToolProcess
from tests.support.written_files import all_bodies, leftovers, manifest, message_files

TOPIC, CHANNEL = "crash", "archive"
KILLS = 8
BATCH = 50
# Every third time from the start of the process, when it may still be repairing; else from when it consumes.
LIFE_S = (0.05, 0.35)
PUBLISH_INTERVAL_S = 0.01
IN_FLIGHT = 200
KINDS = (
    pytest.param(("--format=lines",), marks=pytest.mark.slow),
    ("--format=lines", "--gzip"),
    pytest.param(("--format=jsonl",), marks=pytest.mark.slow),
    pytest.param(("--format=framed", "--compress=zstd"), marks=pytest.mark.slow),
)


class Publisher(Background):
    """Publishes while it is entered. No body has a newline."""

    def __init__(self, nsqd: NsqdProcess, history: History) -> None:
        super().__init__(self._run)
        self._nsqd = nsqd
        self._history = history

    def _run(self) -> None:
        bodies = Bodies()
        with self._nsqd.connect() as client:
            while not self.is_over.wait(PUBLISH_INTERVAL_S):
                batch = bodies.take(BATCH)
                publish = self._history.sending(TOPIC, batch)
                client.send(wire.mpub(TOPIC, batch))
                if client.next_frame() != wire.OK:
                    return
                self._history.ok(publish)


def archive(nsqd: NsqdProcess, root: Path, *flags: str) -> ToolProcess:
    return ToolProcess(
        "nsq_apps",
        "nsq_to_file",
        f"--nsqd-tcp-address=127.0.0.1:{nsqd.tcp_port}",
        f"--topic={TOPIC}",
        f"--channel={CHANNEL}",
        f"--output-dir={root / 'output'}",
        f"--work-dir={root / 'work'}",
        "--rotate-size=100000",
        "--sync-interval=50ms",
        f"--max-in-flight={IN_FLIGHT}",
        *flags,
        log_path=root / "nsq_to_file.log",
    )


def has_begun_a_file(root: Path) -> bool:
    return any(
        path.stat().st_size
        for path in (root / "work").rglob("*")
        if path.is_file() and not path.name.startswith(".")
    )


def nsqd_on(data_path: Path) -> NsqdProcess:
    return NsqdProcess(
        data_path, "--msg-timeout=1s"
    ).start()  # a kill requeues nothing: what was in flight times out


@pytest.mark.crash
@pytest.mark.parametrize("flags", KINDS, ids=" ".join)
def test_killed_under_load_loses_nothing(tmp_path, flags, tally):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    with nsqd_on(tmp_path / "nsqd") as nsqd:
        nsqd.create(TOPIC, CHANNEL)
        history = History(tmp_path / "history.jsonl")
        history.created(TOPIC, CHANNEL)
        with Publisher(nsqd, history):
            for kill in range(KILLS):
                with archive(nsqd, tmp_path, *flags) as tool:
                    if kill % 3:
                        tool.wait_for_log("subscribed")
                    if kill % 3 == 1:
                        wait_until(lambda: has_begun_a_file(tmp_path), 40.0, "a file to be begun")
                    time.sleep(moments.uniform(*LIFE_S))  # a random moment is the point; leaving kills
        with archive(nsqd, tmp_path, *flags) as tool:
            tool.wait_for_log("subscribed")  # before that, a signal ends it as any program
            nsqd.wait_for_channel(TOPIC, CHANNEL, 30.0, depth=0, in_flight_count=0, deferred_count=0)
            assert tool.stop() == 0
    written = all_bodies(tmp_path / "output")
    for body in written:
        history.delivered(TOPIC, CHANNEL, body)
    verdict = judge(history)
    entries = manifest(tmp_path / "output")
    print(f"{verdict.published} published, {verdict.again} duplicates, {len(entries)} files")
    tally(kills=KILLS, acknowledged=verdict.acknowledged, lost=len(verdict.of("lost")), doubled=verdict.again)
    verdict.require_sound()
    # What was in flight at a kill, or finished and not yet reported, comes again: not more.
    assert verdict.again <= KILLS * 2 * IN_FLIGHT
    assert any(entry["repaired"] for entry in entries)
    assert sorted(entry["path"] for entry in entries) == [
        path.name for path in message_files(tmp_path / "output")
    ]
    assert sum(entry["messages"] for entry in entries) == len(written)
    assert (leftovers(tmp_path / "output"), message_files(tmp_path / "work")) == ([], [])
