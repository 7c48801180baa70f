"""Acknowledged means kept: nsqd is stopped under load, again and again, and nothing may be lost, or come again.

tests/torture kills it, under the same load.
"""

from __future__ import annotations

import random
import time

import pytest

from tests.support.ledger import History, judge
from tests.support.mixed_load import Load, drain
from tests.support.nsqd_process import NsqdProcess, is_ours, wait_until
from tests.support.operations import CHANNELS, plan, settle

STOPS = 6
LOAD_S = (0.05, 0.6)
LONG_LIFE, LONG_LOAD_S = 4, 1.5  # what is finished early in this life must not come again
DEFER_MS = 500
FLAGS = ("--max-bytes-per-file=1048576", "--mem-queue-size=2000", "--msg-timeout=60s")


@pytest.mark.crash
def test_stopped_under_load_loses_and_repeats_nothing(tmp_path, tally):
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    history = History(tmp_path / "history.jsonl", clock_ns=time.time_ns)
    topics = plan(history, (("crash", 1, ()),))
    with NsqdProcess(tmp_path / "nsqd", *FLAGS).start() as nsqd:
        nsqd.create("crash", *CHANNELS)
        history.created("crash", *CHANNELS)
        for life in range(STOPS):
            with Load(nsqd, topics, chance, DEFER_MS):
                before = history.acknowledged
                wait_until(lambda: history.acknowledged > before, what="a batch to be stored")  # noqa: B023
                # A random moment is the point.
                time.sleep(LONG_LOAD_S if life == LONG_LIFE else chance.uniform(*LOAD_S))
                assert nsqd.stop() == 0
                history.stopped()
            history.started()
            nsqd.start()
            assert settle(nsqd, topics) == []
        drain(nsqd, topics)
    # Go's nsqd delivers in another order, and does not keep deferrals over a restart.
    verdict = judge(history, without=() if is_ours() else ("reordered", "early"))
    tally(**verdict.counts())
    print(*verdict.lines(), sep="\n")
    verdict.require_sound()
