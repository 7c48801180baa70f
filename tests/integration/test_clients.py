"""Client libraries of others publish to nsqd and consume from it, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from tests.support import real_clients
from tests.support.nsqd_process import REPOSITORY, NsqdProcess

# pynsq has no variant with compression: it cannot read a compressed stream in Python 3.
MODULES = {"pynsq": "nsq", "gnsq": "gnsq", "gnsq-deflate": "gnsq", "ansq": "ansq"}


@pytest.mark.parametrize("library", MODULES)
def test_library_publishes_and_consumes(nsqd: NsqdProcess, library: str) -> None:
    if importlib.util.find_spec(MODULES[library]) is None:
        pytest.skip(f"needs the module {MODULES[library]}")
    program = subprocess.run(
        [sys.executable, "-m", "tests.support.real_clients", library, str(nsqd.tcp_port)],
        cwd=REPOSITORY,
        capture_output=True,
        timeout=90,
    )
    assert program.returncode == 0, program.stderr.decode()
    outcome = json.loads(program.stdout)

    expected = real_clients.ALL
    requeued = sorted(filter(real_clients.is_requeued, expected))
    assert sorted(outcome["finished"]) == sorted(expected)
    assert sorted(outcome["requeued"]) == requeued
    assert sorted(set(outcome["touched"])) == sorted(filter(real_clients.is_touched, expected))
    assert outcome["attempts"] == {body: 2 if body in set(requeued) else 1 for body in expected}
    nsqd.wait_for_channel(
        real_clients.TOPIC,
        real_clients.CHANNEL,
        depth=0,
        in_flight_count=0,
        deferred_count=0,
        timeout_count=0,
        message_count=len(expected),
        requeue_count=len(requeued),
    )
