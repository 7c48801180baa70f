"""What nsqd imports: no module of an optional feature that its options and its data path do not ask for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.go_directory import GoDirectory, numbered
from tests.support.nsqd_process import REPOSITORY, NsqdProcess

pytestmark = pytest.mark.ours

# Each has a package, and mostly an `options.py`, which composing the options needs.
_OF_FEATURE = re.compile(r"nsqd_py\.(?:fsck|go_import|lease|standby|store)\.(?!options$)\w+")
# nsqd, which says at its end what it has imported.
_NSQD = """
import sys
from nsq_apps.nsqd import main
status = main()
print("imported:", *sys.modules, file=sys.stderr)
sys.exit(status)
"""
_COMMAND = (sys.executable, "-c", _NSQD)


def of_features(text: str) -> set[str]:
    """Return the modules of optional features among those that an nsqd has imported."""
    [line] = re.findall("^imported: (.*)", text, re.MULTILINE)
    modules = line.split()
    assert "nsqd_py.server.options" in modules
    return {module for module in modules if _OF_FEATURE.fullmatch(module)}


@pytest.fixture
def serve(tmp_path):
    """`serve(*flags)` runs an nsqd that gets and delivers a message, and returns the modules of features that it imports."""

    def run(*flags: str) -> set[str]:
        nsqd = NsqdProcess(tmp_path / "data", *flags, command=_COMMAND)
        with nsqd.start():
            nsqd.create("orders", "c")
            nsqd.pub("orders", b"first")
            assert [message.body for message in nsqd.consume("orders", "c", 1)] == [b"first"]
            for path in ("/stats?format=json", "/metrics", "/ping", "/config/log_level"):
                assert nsqd.http("GET", path).status == 200
            assert nsqd.stop() == 0
            return of_features(nsqd.log_text())

    return run


def test_an_nsqd_without_options_imports_no_feature_at_any_start(serve):
    assert serve() == set()
    assert serve() == set()


def test_a_primary_imports_standbys_and_nothing_else(serve):
    modules = serve("--accept-standbys")
    assert {"nsqd_py.standby.part", "nsqd_py.standby.primary"} <= modules
    assert {module.split(".")[1] for module in modules} == {"standby"}
    assert modules.isdisjoint({"nsqd_py.standby.election"})
    # Its data path says that it was a primary, not that it is a standby.
    assert serve() == set()


def test_files_of_go_import_their_import_once(serve, tmp_path):
    go = GoDirectory(tmp_path / "data")
    go.name_topics({"t": ["a"]})
    go.queue("t:a", numbered("a", 3))
    modules = serve()
    assert "nsqd_py.go_import.take_over" in modules
    assert {module.split(".")[1] for module in modules} == {"go_import"}
    assert serve() == set()


def test_a_check_imports_neither_standbys_nor_a_lease(serve, tmp_path):
    serve()
    command = [*_COMMAND, f"--check-data={tmp_path / 'data'}"]
    done = subprocess.run(
        command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    modules = of_features(done.stderr)
    assert "nsqd_py.fsck.command" in modules
    assert {module.split(".")[1] for module in modules} <= {"fsck", "go_import"}


def test_the_daemon_names_no_feature():
    text = (Path(REPOSITORY) / "nsqd_py/server/daemon.py").read_text("utf-8").lower()
    words = ("standby", "lease", "election", "follower", "backup", "go_import", "fsck", "nsqd_py.store")
    assert [word for word in words if word in text] == []
