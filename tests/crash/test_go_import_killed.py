"""An import of Go's files that is killed: everything comes, and nothing twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.go_directory import (
    GoDirectory,
    GoMessage,
    aside_folder,
    go_messages,
    kept_position,
    kept_queue,
    numbered,
)
from tests.support.ledger import compare
from tests.support.nsqd_process import REPOSITORY, NsqdProcess, wait_until

pytestmark = pytest.mark.ours

COUNT = 5000
BULK = 40_000


def small_directory(path: Path) -> GoDirectory:
    """Several files, a queue of the topic, a pause, and damage."""
    go = GoDirectory(path)
    go.name_topics({"t": ["a", "b"], "held": ["x"]}, paused=["held"])
    go.queue("t:a", numbered("a", 40), numbered("a", 20, 40))
    go.write("t:b", 0, b"".join(message.stored for message in numbered("b", 9, 100))[:-1])
    go.queue("t", numbered("own", 5, 200))
    go.queue("held", numbered("held", 3))
    go.queue("held:x", numbered("x", 2, 50))
    return go


def test_killed_at_every_step(tmp_path, tally):
    go = small_directory(tmp_path / "template")
    before = go.names
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.go_import_kills", go.path, tmp_path],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    kills: list[dict[str, Any]] = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(kills) > 30
    changes = [str(kill["operation"]).partition(" ")[0] for kill in kills]
    assert changes.count("os.rename") > 20 and {"open", "os.mkdir", "os.rmdir"} <= set(changes)
    for kill in kills:
        directory = Path(kill["directory"])
        context = f"killed before {kill['operation']}"
        own = numbered("own", 5, 200)
        assert kept_queue(directory, "t", "a") == numbered("a", 60) + own, context
        assert kept_queue(directory, "t", "b") == numbered("b", 8, 100) + own, context
        assert kept_queue(directory, "held", "x") == numbered("x", 2, 50) + numbered("held", 3), context
        assert kept_position(directory, "held").finished.floor == 2, context
        assert GoDirectory(directory).names == [], context
        assert {path.name for path in aside_folder(directory).iterdir()} == {
            *before,
            "imported.json",
            "nsqd.dat",
        }
    tally(kills=len(kills) - 1, acknowledged=len(kills) * 78, lost=0, doubled=0)


def delivered(nsqd: NsqdProcess, count: int) -> list[GoMessage]:
    with nsqd.consumer("t", "a", 2500) as client:
        messages = client.consume(count)
        client.expect_silence()
    return [GoMessage(m.body, int(m.id, 16), m.timestamp_ns, m.attempts) for m in messages]


def test_an_nsqd_is_stopped_and_killed_while_it_imports(make_nsqd, tmp_path, tally):
    """Stopped and killed in the middle of it, and killed once more at its end, then left to finish."""
    go = GoDirectory(tmp_path / "nsqd0")
    messages = numbered("a", COUNT)
    go.name_topics({"t": ["a"], "long": ["b"]})
    go.queue("t:a", messages[: COUNT // 2], messages[COUNT // 2 :])
    go.queue("long:b", go_messages([b"x" * 200] * BULK))  # takes the time that there has to be
    nsqd = NsqdProcess(go.path)
    before = go.names
    nsqd.launch()
    wait_until(lambda: "IMPORT: there are" in nsqd.log_text())
    assert nsqd.stop() == 0
    assert "stopped before the start was over" in nsqd.log_text() and go.names == before
    nsqd.launch()
    wait_until(lambda: "IMPORT: there are" in nsqd.log_text())
    nsqd.kill()
    assert go.names == before or "IMPORT: TOPIC" in nsqd.log_text()  # it may have been quick
    nsqd.launch()
    wait_until(lambda: "IMPORT: done" in nsqd.log_text() or "listening" in nsqd.log_text())
    nsqd.kill()
    nsqd = make_nsqd()
    found = delivered(nsqd, COUNT)
    expected = [message.tried(1) for message in messages]
    assert sorted(found) == sorted(expected)
    nsqd.wait_for_channel("long", "b", depth=BULK)
    aside_folder(go.path)
    verdict = compare(
        (message.body for message in messages), (message.body for message in found)
    ).require_sound()
    tally(kills=2, **verdict.counts())
