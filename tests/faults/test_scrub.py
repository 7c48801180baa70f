"""The scrub finds damage that no consumer has met, counts it, and says it once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nsqd_py.diskqueue.records import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from nsqd_py.server.options import AUTO, check_options, read_options
from nsqd_py.settings.declaration import BadOptions
from tests.support.harm import flip
from tests.support.nsqd_process import NsqdProcess, wait_until

pytestmark = pytest.mark.ours

BODY_BYTES = 100
COUNT = 200
RECORD_BYTES = RECORD_HEADER_BYTES + 4 + BODY_BYTES
DEADLINE_S = 40.0


@pytest.fixture
def nsqd(make_nsqd) -> NsqdProcess:
    """With 200 records in three files, which it reads again and again."""
    nsqd = make_nsqd("--scrub-rate=50MB", "--max-bytes-per-file=12000", "--sync-timeout=50ms")
    nsqd.create("t", "c")
    nsqd.pub("t", *[b"%0*d" % (BODY_BYTES, number) for number in range(COUNT)])
    nsqd.wait_for_channel("t", "c", depth=COUNT)
    return nsqd


def logs(nsqd: NsqdProcess) -> list[Path]:
    return sorted(nsqd.data_path.glob("t.*.log"))


def scrub_of(nsqd: NsqdProcess) -> dict[str, Any]:
    return nsqd.stats()["scrub"]


def wait_for_passes(nsqd: NsqdProcess) -> None:
    """Wait until everything that was on the disk at this call has been read."""
    before = scrub_of(nsqd)["passes"]
    wait_until(lambda: scrub_of(nsqd)["passes"] >= before + 2, DEADLINE_S, "passes of the scrub")


def test_what_is_sound_is_read_again_and_again(nsqd):
    wait_for_passes(nsqd)
    statistics = scrub_of(nsqd)
    assert statistics["checked_bytes"] >= 2 * COUNT * RECORD_BYTES
    assert (statistics["damaged_bytes"], statistics["repaired_bytes"]) == (0, 0)
    assert statistics["last_pass"] > 1_600_000_000
    metrics = nsqd.http("GET", "/metrics").text
    assert "nsqd_scrub_damaged_bytes_total 0.0" in metrics
    assert "nsqd_scrub_last_pass_timestamp_seconds 1" in metrics
    assert "SCRUB" not in nsqd.log_text()


def test_flipped_bits_are_found_and_counted_once(nsqd):
    """In closed files, and in the one that is written; nobody has read them."""
    files = logs(nsqd)
    assert len(files) >= 3
    for path in (files[0], files[-1]):
        flip(path, *(FILE_HEADER_BYTES + index * RECORD_BYTES + 90 for index in (2, 5)))
    wait_until(lambda: scrub_of(nsqd)["damaged_bytes"] == 4 * RECORD_BYTES, DEADLINE_S, "the damage")
    wait_for_passes(nsqd)
    assert scrub_of(nsqd)["damaged_bytes"] == 4 * RECORD_BYTES
    assert nsqd.topic_stats("t")["damaged_bytes"] == 4 * RECORD_BYTES
    metrics = nsqd.http("GET", "/metrics").text
    assert f"nsqd_scrub_damaged_bytes_total {4 * RECORD_BYTES}.0" in metrics
    assert f'nsqd_log_damaged_bytes_total{{topic="t"}} {4 * RECORD_BYTES}.0' in metrics
    lines = [line for line in nsqd.log_text().splitlines() if "SCRUB: " in line]
    assert len(lines) == 2
    for path in (files[0], files[-1]):
        assert any(
            path.name in line and f"{2 * RECORD_BYTES} damaged bytes in 2 places" in line for line in lines
        )
    assert len(list(nsqd.data_path.glob("*.damaged"))) == 4


def test_a_damaged_header_of_a_file_is_written_again(nsqd):
    path = logs(nsqd)[1]
    before = path.read_bytes()
    flip(path, 9)
    wait_until(lambda: scrub_of(nsqd)["repaired_bytes"] == FILE_HEADER_BYTES, DEADLINE_S, "the repair")
    assert path.read_bytes() == before


def test_it_can_be_off(make_nsqd):
    nsqd = make_nsqd("--scrub-rate=0")
    nsqd.create("t")
    assert scrub_of(nsqd)["rate"] == 0
    assert "nsqd_scrub_passes_total 0.0" in nsqd.http("GET", "/metrics").text


@pytest.mark.parametrize(("text", "rate"), [("auto", AUTO), ("0", 0), ("12MB", 12_000_000)])
def test_rates(text, rate):
    assert read_options([f"--scrub-rate={text}"]).scrub_rate == rate


def test_a_rate_below_zero_is_refused():
    with pytest.raises(BadOptions, match="--scrub-rate"):
        check_options(read_options(["--scrub-rate=-5"]))
