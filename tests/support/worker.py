"""nsq-worker as a process, with an app that notes what its handlers do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

from tests.support.nsqd_process import STOP_DEADLINE_S, NsqdProcess, wait_until
from tests.support.tool_process import run_tool

_RUNS = re.compile(r"^\[nsq_worker (\d+)\] .* runs as pid (\d+)$", re.MULTILINE)
_LISTENS = re.compile(r"HTTP: listening on (\S+)")

# `{"id": 1}` is handled; "wait": it waits for the file `go`; "fail", "die", "exit": what happens to its process.
APP = """
import os, sys, time
from pathlib import Path
from nsqd_py.work import App, Retry

app = App("shop", nsqd_tcp_addresses=os.environ["SHOP_NSQD"])


def note(text):
    with open("notes", "a") as notes:
        notes.write(text + "\\n")


@app.handler("orders", channel="billing", concurrency=2, retry=Retry(attempts=1))
def bill(order: dict) -> None:
    note(f"began {order['id']}")
    while order.get("wait") and not Path("go").exists():
        time.sleep(0.01)
    if order.get("die") and not Path("dead").exists():
        Path("dead").touch()
        os._exit(3)
    if order.get("exit"):
        sys.exit("no more")
    if order.get("fail"):
        raise ValueError(order["fail"])
    note(f"done {order['id']}")


@app.handler("mails")
async def mail(text: str) -> None:
    note(f"mailed {text}")
"""


class Worker:
    """One nsq-worker, whose current directory has the app `shop:app`."""

    def __init__(self, folder: Path, nsqd: NsqdProcess | None = None, app: str = APP) -> None:
        self.folder = folder
        self.environment = dict(os.environ, SHOP_NSQD=f"127.0.0.1:{nsqd.tcp_port if nsqd else 1}")
        self.write(app)
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def write(self, app: str) -> None:
        """Replace the app."""
        (self.folder / "shop.py").write_text(app)

    # ---- a run until its end

    def run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return run_tool(
            "nsq_apps.nsq_worker",
            *words,
            directory=self.folder,
            env=self.environment,
            input=stdin,
            text=False,
            timeout_s=STOP_DEADLINE_S,
        )

    # ---- the life of one that goes on

    def start(self, *words: str) -> None:
        """Start it, and wait until its processes run."""
        self.launch(*words)
        flags = [word for word in words if word.startswith("--processes=")]
        count = int(flags[0].partition("=")[2]) if flags else 1
        wait_until(lambda: len(self.pids()) == count, what="the processes to run")

    def launch(self, *words: str) -> None:
        command = [sys.executable, "-m", "nsq_apps.nsq_worker", "shop:app", *words]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """The exit status."""
        return self.process.wait(STOP_DEADLINE_S)

    def destroy(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pid in self.pids().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # ---- what it shows

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def wait_for_log(self, text: str) -> None:
        wait_until(lambda: text in self.log(), what=f"{text!r} in the log")

    def pids(self) -> dict[int, int]:
        """The newest process of each number."""
        return {int(number): int(pid) for number, pid in _RUNS.findall(self.log())}

    def notes(self) -> list[str]:
        """What handlers have done."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_note(self, text: str, count: int = 1) -> None:
        wait_until(lambda: self.notes().count(text) >= count, what=f"the note {text!r}")

    def health_address(self) -> str:
        """Where --health-address=127.0.0.1:0 listens."""
        found = _LISTENS.search(self.log())
        assert found is not None
        return found[1]

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """The status and the body of an answer of --health-address=127.0.0.1:0."""
        request = urllib.request.Request(f"http://{self.health_address()}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.code, refusal.read().decode()


def is_gone(pid: int) -> bool:
    """True if a process has ended, even if its parent has not asked how."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
