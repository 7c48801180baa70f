"""Servers that a daemon or a tool asks, and that answer with far too much."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.hostile_answers import FORMS, MB, answering
from tests.support.nsqadmin_process import NsqadminProcess
from tests.support.nsqd_process import wait_until

pytestmark = pytest.mark.ours

# What the process may take at its peak: itself, an answer of 32 MB, and what is made of it.
MOST_ADMIN_MB = 420
MOST_STAT_MB = 420
# A page that waits for a slice of an answer, in CPU time of nsqadmin; it is 10 ms on a quiet machine.
MOST_WAIT_S = 0.5


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def watch(admin: NsqadminProcess, until_s: float) -> float:
    """Ask for /ping until then; return the longest that it took, without the two worst.

    It is the lesser of wall time and of nsqadmin's CPU time, so that it does not depend on other programs.
    """
    waits = []
    while time.monotonic() < until_s:
        began_s, began_cpu_s = time.monotonic(), admin.loop_cpu_s
        assert admin.http("GET", "/ping").status == 200
        waits.append(min(time.monotonic() - began_s, admin.loop_cpu_s - began_cpu_s))
    return sorted(waits)[-3]


LONG = pytest.mark.slow
SHORT_FORMS = ("topics", "objects")


SIZES = [(form, 30, () if form in SHORT_FORMS else LONG) for form in FORMS] + [("objects", 200, LONG)]


@pytest.mark.parametrize(
    ("form", "size_mb"), [pytest.param(form, size_mb, marks=marks) for form, size_mb, marks in SIZES]
)
def test_nsqadmin_reads_long_figures_in_bounded_memory(make_nsqadmin, form, size_mb):
    with answering(FORMS[form](size_mb * MB)) as address:
        admin = make_nsqadmin(f"--nsqd-http-address={address}")
        worst_s = watch(admin, time.monotonic() + 3)
        peak = peak_mb(admin.pid)
        log_bytes = len(admin.log_text())
    print(f"nsqadmin: peak {peak:.0f} MB, /ping {worst_s * 1000:.0f} ms, log {log_bytes} bytes")
    assert peak < MOST_ADMIN_MB
    assert worst_s < MOST_WAIT_S
    assert log_bytes < MB


@pytest.mark.parametrize("nsqds", [5, pytest.param(20, marks=LONG)])
def test_long_figures_of_many_nsqds_take_no_more_memory(make_nsqadmin, nsqds):
    """Of 20 at once it took 797 MB, now 121 MB."""
    body = FORMS["topics"](30 * MB)
    with ExitStack() as stack:
        addresses = [stack.enter_context(answering(body)) for _ in range(nsqds)]
        admin = make_nsqadmin(*(f"--nsqd-http-address={address}" for address in addresses))
        watch(admin, time.monotonic() + (3 if nsqds == 5 else 15))
        peak = peak_mb(admin.pid)
    print(f"nsqadmin, {nsqds} nsqds: peak {peak:.0f} MB")
    assert peak < 250


@pytest.mark.parametrize(
    "form", ["topics", pytest.param("objects", marks=LONG), pytest.param("lists", marks=LONG)]
)
@pytest.mark.parametrize("kind", ["nsqd", pytest.param("lookupd", marks=LONG)])
def test_nsq_stat_reads_long_figures_in_bounded_memory(form, kind):
    with answering(FORMS[form](40 * MB)) as address:
        command = [
            sys.executable,
            "-m",
            "nsq_apps",
            "nsq_stat",
            f"--{kind}-http-address={address}",
            "--count=1",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            peak = 0.0
            while process.poll() is None:
                with suppress(OSError, StopIteration):  # it has ended
                    peak = max(peak, peak_mb(process.pid))
            text = process.stderr.read().decode()
    print(f"nsq-stat, {form} of 40 MB from {kind}: peak {peak:.0f} MB")
    assert "longer than 33554432 bytes" in text
    assert 0 < peak < MOST_STAT_MB


def test_an_nsqlookupd_that_names_far_too_many(make_nsqadmin):
    with answering(FORMS["producers"](2 * MB)) as address:
        admin = make_nsqadmin(f"--lookupd-http-address={address}")
        wait_until(
            lambda: "names 2000 nsqds or more" in admin.http("GET", "/api/v2/attention").text,
            what="the reason",
        )
        assert admin.http("GET", "/api/v2/nodes").json()["total"] == 2000
        assert peak_mb(admin.pid) < MOST_ADMIN_MB
