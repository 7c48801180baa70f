"""Client libraries of others publish to nsqd and consume from it, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.support import real_clients
from tests.support.nsqd_process import REPOSITORY, NsqdProcess

NSQJS = REPOSITORY / "tests" / "support" / "nsqjs"
MODULES = {"pynsq": "nsq", "gnsq": "gnsq", "ansq": "ansq"}
# pynsq has no variant with compression: it cannot read a compressed stream in Python 3.
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("pynsq", {}),
    ("pynsq", {"tls_v1": True}),
    ("gnsq", {}),
    ("gnsq", {"deflate": True, "deflate_level": 6}),
    ("gnsq", {"snappy": True}),
    ("ansq", {}),
]


@pytest.mark.parametrize(
    ("library", "settings"), VARIANTS, ids=["-".join([library, *settings]) for library, settings in VARIANTS]
)
def test_library_publishes_and_consumes(make_nsqd, certificates, library, settings):
    if importlib.util.find_spec(MODULES[library]) is None:
        pytest.skip(f"needs the module {MODULES[library]}")
    nsqd = make_nsqd(*certificates.nsqd_flags)
    if "tls_v1" in settings:
        settings = settings | {"authority": str(certificates.authority)}
    check_outcome(nsqd, real_clients.run_in_process(library, nsqd.tcp_port, settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"deflate": True, "deflateLevel": 6},
        {"snappy": True},
        {"tls": True, "tlsVerification": False},
        {"tls": True, "tlsVerification": False, "snappy": True},
    ],
    ids=["plain", "deflate", "snappy", "tls", "tls-snappy"],
)
def test_nsqjs_publishes_and_consumes(make_nsqd, certificates, settings):
    if not (NSQJS / "node_modules" / "nsqjs").is_dir() or not shutil.which("node"):
        pytest.skip("needs Node.js with npm: `make test` installs nsqjs where they are")
    nsqd = make_nsqd(*certificates.nsqd_flags)
    plan = {
        "topic": real_clients.TOPIC,
        "channel": real_clients.CHANNEL,
        "singles": real_clients.SINGLES,
        "batches": real_clients.IN_BATCHES,
        "later": real_clients.LATER,
        "defer_ms": real_clients.DEFER_MS,
        "count": len(real_clients.ALL),
        "settings": settings,
    }
    command = ["node", "client.js", str(nsqd.tcp_port), json.dumps(plan)]
    with subprocess.Popen(command, cwd=NSQJS, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        check_outcome(nsqd, json.loads(program.stdout.readline()))
        program.stdin.close()
    assert program.returncode == 0


def check_outcome(nsqd: NsqdProcess, outcome: dict[str, Any]) -> None:
    """Every message was finished, requeued and touched as planned, and nsqd counts the same."""
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
