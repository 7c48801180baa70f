"""Keep a data directory as a version of nsqd-py wrote it: `python -m tests.upgrade.write_directory COMMIT...`.

Each commit is checked out into a temporary work tree, and its nsqd gets the same work as all others. The directory is
kept twice as tests/data/<date>-<commit>-<end>.tar.xz: after a clean stop and after a kill. To be run once for each
release; test_released_directories.py says what the present version must find.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.nsqd_process import REPOSITORY, NsqdProcess
from tests.support.wire import Client, Message, req

DIRECTORIES = REPOSITORY / "tests/data"
ENDS = ("stopped", "killed")
YEARS_MS = 10 * 365 * 24 * 3600 * 1000
FLAGS = (
    "--max-bytes-per-file=20000",
    "--max-req-timeout=200000h",
    "--msg-timeout=10m",
    "--mem-queue-size=50",
)
FLAGS_OF_LATER = ("--max-defer-timeout=200000h",)  # DPUB obeys --max-req-timeout before there was this flag

ORDERS = [b"order %02d" % number for number in range(40)]
LATER = b"order for later"
REQUEUED = ORDERS[4]
PUT_OFF = ORDERS[1:3]
FINISHED = ORDERS[::3]
IN_FLIGHT = [body for body in ORDERS if body not in (*FINISHED, *PUT_OFF, REQUEUED)]
HELD = [b"held %d" % number for number in range(5)]
LONELY = [b"lonely %d" % number for number in range(3)]
LARGE = [b"large %02d " % number + b"x" * 1000 for number in range(100)]
KEPT_LARGE = [LARGE[3], LARGE[50]]
SETTLED_S = 3.0  # positions are written after 0.1 s, and used files made smaller after some more


def main(commits: Sequence[str]) -> None:
    for commit in commits:
        with tempfile.TemporaryDirectory() as name, work_tree(commit, Path(name, "tree")) as tree:
            for end in ENDS:
                _keep(commit, tree, Path(name, end), end)


@contextmanager
def work_tree(commit: str, path: Path) -> Iterator[Path]:
    """Check out a commit there, for a while. Raises CalledProcessError if the history does not have it."""
    _git("worktree", "add", "--quiet", "--detach", str(path), commit)
    try:
        yield path
    finally:
        _git("worktree", "remove", "--force", str(path))


def _keep(commit: str, tree: Path, directory: Path, end: str) -> None:
    with NsqdProcess(directory, *FLAGS, *_later_flags(tree), command=command_in(tree, "nsqd")) as nsqd:
        nsqd.start()
        with work(nsqd):
            time.sleep(SETTLED_S)
            nsqd.stop() if end == "stopped" else nsqd.kill()
    date = _git("log", "-1", "--format=%cs", commit)
    path = DIRECTORIES / f"{date}-{commit}-{end}.tar.xz"
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for file in sorted(directory.iterdir()):
            archive.add(file, file.name, filter=_anonymous)
    print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size} bytes")


def work(nsqd: NsqdProcess) -> Client:
    """Use every feature of the files. Return the client that has messages in flight."""
    nsqd.create("orders", "billing", "archive")
    nsqd.create("held", "c")
    nsqd.create("lonely")
    nsqd.create("sparse", "c")
    nsqd.post("/channel/pause?topic=orders&channel=archive")
    nsqd.post("/topic/pause?topic=held")
    with nsqd.connect() as publisher:
        publisher.pub("orders", *ORDERS[:10])
        publisher.mpub("orders", ORDERS[10:])
        publisher.dpub("orders", YEARS_MS, LATER)
        publisher.pub("held", *HELD)
        publisher.mpub("lonely", LONELY)
    nsqd.publish("sparse", LARGE, batch=10)
    with nsqd.connect() as sparse:
        _consume(sparse, "sparse", LARGE, [body for body in LARGE if body not in KEPT_LARGE], KEPT_LARGE)
    billing = nsqd.connect()
    messages = _consume(billing, "orders", ORDERS, FINISHED, PUT_OFF, channel="billing")
    billing.send(req(messages[REQUEUED].id, 0))
    billing.round_trip()
    nsqd.wait_for_channel("orders", "billing", depth=1, deferred_count=3, in_flight_count=len(IN_FLIGHT))
    return billing


def _consume(
    client: Client,
    topic: str,
    bodies: Sequence[bytes],
    finished: Sequence[bytes],
    put_off: Sequence[bytes],
    channel: str = "c",
) -> dict[bytes, Message]:
    """Take all messages, finish some and put others off for years; no more come afterwards."""
    client.sub(topic, channel, rdy_count=len(bodies))
    messages = {message.body: message for message in client.messages(len(bodies))}
    client.send(b"RDY 0\n")
    client.fin(*(messages[body] for body in finished))
    client.send(*(req(messages[body].id, YEARS_MS) for body in put_off))
    client.round_trip()
    return messages


def command_in(tree: Path, program: str) -> list[str]:
    """Return the command of a program in a work tree of this repository."""
    module = f"nsq_apps.{program}" if (tree / "apps/nsq_apps").exists() else f"apps.{program}"
    paths = ":".join(str(path) for path in (tree, tree / "apps", tree / "tools"))
    return ["env", f"--chdir={tree}", f"PYTHONPATH={paths}", sys.executable, "-m", module]


def _later_flags(tree: Path) -> Sequence[str]:
    found = subprocess.run(
        [*command_in(tree, "nsqd"), "--help"], capture_output=True, text=True, check=False
    ).stdout
    return FLAGS_OF_LATER if "max-defer-timeout" in found else ()


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()


def _anonymous(file: tarfile.TarInfo) -> tarfile.TarInfo:
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return file


if __name__ == "__main__":
    main(sys.argv[1:])
